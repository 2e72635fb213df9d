//! Who meets whom: each race sets up a world and names its contenders.

use domain::ports::Received;
use serde_json::{Value, json};
use testkit::executor::TaskId;
use testkit::hostile::Fate;

use crate::receiver::Reply;
use crate::story::Webhook;
use crate::world::World;

/// Starts one contender.
pub type Start = Box<dyn FnOnce(&mut World) -> TaskId>;

/// A race.
#[derive(Clone, Copy)]
pub struct Race {
    /// Its name.
    pub name: &'static str,
    /// Sets the world up; who meets then.
    pub set_up: fn(&mut World) -> Vec<Start>,
    /// Calls that matter beside those about the delivery: by their name, or by what they are about.
    pub about: &'static [&'static str],
    /// Only a sample of the orders is tried.
    pub sampled: bool,
}

macro_rules! races {
    ($($name:ident $about:expr, $sampled:expr;)+) => {
        /// All races.
        pub const RACES: &[Race] =
            &[$(Race { name: stringify!($name), set_up: $name, about: &$about, sampled: $sampled }),+];
    };
}

const SWEEP: [&str; 2] = ["get_many", "receive"];
const STATES: [&str; 3] = ["p", "get_many", "resumed_endpoints"];
const PLANS: [&str; 4] = ["plan", "save_plan", "bind_redrive_id", "get_many"];

races! {
    the_same_message_twice [], false;
    two_messages_of_one_webhook [], false;
    conflicting_messages [], false;
    a_wake_up_twice [], false;
    a_message_and_a_wake_up [], false;
    takeover_by_message_and_by_sweep SWEEP, false;
    takeover_by_two_messages [], false;
    a_cancel_and_the_first_claim [], false;
    a_cancel_and_a_retry [], false;
    a_cancel_and_a_takeover [], false;
    a_late_finish_and_a_takeover [], false;
    a_late_finish_and_the_next_retry [], false;
    a_pause_and_the_first_message ["p"], false;
    a_pause_and_a_resume STATES, false;
    a_resume_and_a_wake_up STATES, false;
    two_resumes STATES, true;
    a_pause_a_resume_and_a_wake_up STATES, true;
    a_deadline_and_a_resume ["p", "get_many", "resumed_endpoints"], false;
    two_sweeps_rearm SWEEP, false;
    two_arm_runs ["get_many"], false;
    a_rearm_and_a_wake_up SWEEP, false;
    two_approvals PLANS, false;
    an_approval_and_the_sweep PLANS, false;
    two_plans_of_one_dead_letter ["get_many"], false;
    an_approval_and_a_late_acceptance PLANS, false;
    the_dlq_and_its_message SWEEP, false;
    three_copies [], true;
    three_takeovers SWEEP, true;
}

/// An invocation that outlives its lease, as none should: only with it can an outcome come too late.
const SUSPENDED_MS: i64 = 1_000_000;

fn deliver(retry: bool, messages: Vec<Received>) -> Start {
    Box::new(move |world| {
        let worker = world.free[usize::from(retry)].pop().expect("a free worker");
        world.start(worker, retry, messages)
    })
}

fn sweep(run: &'static str) -> Start {
    Box::new(move |world| world.start_sweep(0, run))
}

fn operator(action: Value) -> Start {
    Box::new(move |world| world.start_operator(action))
}

fn set(state: &'static str) -> Start {
    operator(json!({"action": "endpoint", "endpoint": "p", "set": state, "reason": "so"}))
}

fn approve(proposed: &Value, redrive_id: &str) -> Start {
    operator(
        json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": redrive_id, "reason": "so"}),
    )
}

/// One message of each queue, as a batch.
fn take(world: &World, retry: bool) -> Vec<Received> {
    let queue = if retry { &world.retry } else { &world.intake };
    queue.take_in_order(1, |_| {})
}

fn send(world: &World) -> Vec<Received> {
    world.send(&Webhook::new("e", "p"));
    take(world, false)
}

fn cancel(world: &World) -> Vec<Received> {
    world.cancel("e", "p");
    take(world, false)
}

/// The delivery waits for attempt 2, and its wake-up is at hand.
fn wake_up(world: &mut World) -> Vec<Received> {
    world.receiver.then([Reply::Status(500)]);
    world.send(&Webhook::new("e", "p"));
    world.settle();
    world.clock.advance(7_000);
    take(world, true)
}

/// Attempt 2 was claimed, its process died long ago, and its wake-up is back.
fn died(world: &mut World) -> Vec<Received> {
    let batch = wake_up(world);
    deliver(true, batch)(world);
    world.until_requests("e", 2);
    world.kill_all();
    world.clock.advance(400_000);
    take(world, true)
}

/// Attempt 1 is on its way, and its process is suspended until its lease is over; its message is back.
fn suspended(world: &mut World) -> (TaskId, Vec<Received>) {
    let batch = send(world);
    let worker = world.free[0].pop().expect("a free worker");
    let task = world.start_for(worker, false, batch, SUSPENDED_MS);
    world.until_requests("e", 1);
    let key = "e#p".to_owned();
    world.clock.advance(300_000);
    world.ledger.fault(Fate::HangAfter, "the process was suspended", &key, world.executor.now());
    (task, take(world, false))
}

fn already(task: TaskId) -> Start {
    Box::new(move |_| task)
}

fn the_same_message_twice(world: &mut World) -> Vec<Start> {
    let batch = send(world);
    vec![deliver(false, batch.clone()), deliver(false, batch)]
}

fn two_messages_of_one_webhook(world: &mut World) -> Vec<Start> {
    world.receiver.then([Reply::Status(500)]);
    vec![deliver(false, send(world)), deliver(false, send(world))]
}

fn conflicting_messages(world: &mut World) -> Vec<Start> {
    let one = send(world);
    world.send(&Webhook { variant: 1, ..Webhook::new("e", "p") });
    vec![deliver(false, one), deliver(false, take(world, false))]
}

fn a_wake_up_twice(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    vec![deliver(true, batch.clone()), deliver(true, batch)]
}

fn a_message_and_a_wake_up(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    vec![deliver(true, batch), deliver(false, send(world))]
}

fn takeover_by_message_and_by_sweep(world: &mut World) -> Vec<Start> {
    let batch = died(world);
    vec![deliver(true, batch), sweep("reconcile")]
}

fn takeover_by_two_messages(world: &mut World) -> Vec<Start> {
    let batch = died(world);
    vec![deliver(true, batch), deliver(false, send(world))]
}

fn a_cancel_and_the_first_claim(world: &mut World) -> Vec<Start> {
    world.receiver.then([Reply::Status(500)]);
    vec![deliver(false, send(world)), deliver(false, cancel(world))]
}

fn a_cancel_and_a_retry(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    world.receiver.then([Reply::Status(500)]);
    vec![deliver(true, batch), deliver(false, cancel(world))]
}

fn a_cancel_and_a_takeover(world: &mut World) -> Vec<Start> {
    let batch = died(world);
    vec![deliver(true, batch), deliver(false, cancel(world))]
}

fn a_late_finish_and_a_takeover(world: &mut World) -> Vec<Start> {
    let (task, batch) = suspended(world);
    vec![already(task), deliver(false, batch)]
}

fn a_late_finish_and_the_next_retry(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    let worker = world.free[1].pop().expect("a free worker");
    let task = world.start_for(worker, true, batch, SUSPENDED_MS);
    world.until_requests("e", 2);
    world.clock.advance(400_000);
    world.ledger.fault(Fate::HangAfter, "the process was suspended", &"e#p", world.executor.now());
    vec![already(task), deliver(true, take(world, true)), sweep("reconcile")]
}

fn a_pause_and_the_first_message(world: &mut World) -> Vec<Start> {
    vec![set("paused"), deliver(false, send(world))]
}

/// Two deliveries are held; the endpoint is paused.
fn held(world: &mut World) {
    world.set_endpoint("p", "paused");
    world.send(&Webhook::new("e", "p"));
    world.settle();
}

fn a_pause_and_a_resume(world: &mut World) -> Vec<Start> {
    held(world);
    vec![set("active"), set("paused")]
}

fn a_resume_and_a_wake_up(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    world.set_endpoint("p", "paused");
    vec![set("active"), deliver(true, batch)]
}

fn two_resumes(world: &mut World) -> Vec<Start> {
    held(world);
    vec![set("active"), set("active"), sweep("reconcile")]
}

fn a_pause_a_resume_and_a_wake_up(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    world.set_endpoint("p", "paused");
    vec![set("active"), set("paused"), deliver(true, batch)]
}

fn a_deadline_and_a_resume(world: &mut World) -> Vec<Start> {
    world.set_endpoint("p", "paused");
    let by = Some(world.executor.now().plus(60_000));
    world.send(&Webhook { deliver_by: by, ..Webhook::new("e", "p") });
    world.settle();
    world.clock.advance(61_000);
    vec![set("active"), sweep("reconcile")]
}

fn two_sweeps_rearm(world: &mut World) -> Vec<Start> {
    wake_up(world);
    world.clock.advance(200_000);
    vec![sweep("reconcile"), sweep("reconcile")]
}

fn two_arm_runs(world: &mut World) -> Vec<Start> {
    let at = Some(world.executor.now().plus(1_800_000));
    world.send(&Webhook { deliver_at: at, ..Webhook::new("e", "p") });
    world.settle();
    world.clock.advance(1_100_000);
    vec![sweep("arm"), sweep("arm")]
}

fn a_rearm_and_a_wake_up(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    world.clock.advance(200_000);
    vec![sweep("reconcile"), deliver(true, batch)]
}

/// A dead letter.
fn dead(world: &mut World) {
    world.receiver.then([Reply::Status(422)]);
    world.send(&Webhook::new("e", "p"));
    world.settle();
}

fn propose(world: &mut World) -> Value {
    world.operate(&json!({"action": "propose", "filter": {"ids": ["e"]}}))
}

fn two_approvals(world: &mut World) -> Vec<Start> {
    dead(world);
    let proposed = propose(world);
    vec![approve(&proposed, "r1"), approve(&proposed, "r2")]
}

fn an_approval_and_the_sweep(world: &mut World) -> Vec<Start> {
    dead(world);
    let proposed = propose(world);
    vec![approve(&proposed, "r1"), sweep("reconcile")]
}

fn two_plans_of_one_dead_letter(world: &mut World) -> Vec<Start> {
    dead(world);
    let (one, two) = (propose(world), propose(world));
    vec![approve(&one, "r1"), approve(&two, "r2")]
}

fn an_approval_and_a_late_acceptance(world: &mut World) -> Vec<Start> {
    let (task, batch) = suspended(world);
    world.receiver.then([Reply::Status(422)]);
    // Its heir ends as a dead letter before the suspended process wakes up.
    let heir = deliver(false, batch)(world);
    world.only(heir);
    let proposed = world.propose_only("e");
    vec![already(task), approve(&proposed, "r1")]
}

fn the_dlq_and_its_message(world: &mut World) -> Vec<Start> {
    let batch = send(world);
    world.intake_dlq.send(&batch[0].body, 0);
    vec![deliver(false, batch), sweep("reconcile")]
}

fn three_copies(world: &mut World) -> Vec<Start> {
    let batch = wake_up(world);
    vec![deliver(true, batch.clone()), deliver(true, batch), deliver(false, send(world))]
}

fn three_takeovers(world: &mut World) -> Vec<Start> {
    let batch = died(world);
    vec![deliver(true, batch.clone()), deliver(true, batch), sweep("reconcile")]
}
