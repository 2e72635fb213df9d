//! The stories whose every call is made to fail, hang or die. Each goes through one way that a delivery can take.

use domain::time::DAY_MS;
use serde_json::json;

use crate::receiver::Reply;
use crate::story::Webhook;
use crate::world::World;

/// A story.
pub struct Story {
    /// Its name.
    pub name: &'static str,
    /// How it goes.
    pub tell: fn(&mut World),
}

macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        /// All stories.
        pub const STORIES: &[Story] = &[$(Story { name: stringify!($name), tell: $name }),+];
    };
}

stories![
    first_attempt_succeeds,
    first_attempt_fails_and_the_second_succeeds,
    no_answer_and_then_success,
    blocked,
    gone_disables_and_a_resume_goes_on,
    permanent,
    exhausted_with_a_long_wait,
    throttled_with_a_hint,
    first_attempt_dies_and_its_message_takes_over,
    a_retry_dies_and_its_wake_up_takes_over,
    a_retry_dies_and_the_sweep_takes_over,
    dies_again_and_again,
    the_same_message_three_times,
    cancel_first,
    cancel_while_waiting,
    cancel_in_flight,
    cancel_by_an_operator,
    hold_and_resume,
    held_until_its_deadline,
    removed_and_back,
    expires_between_attempts,
    too_late_from_the_start,
    long_wait_is_armed,
    a_lost_wake_up_is_rearmed,
    drained_from_the_intake_dlq,
    drained_from_the_retry_dlq,
    redrive,
    redrive_approved_twice,
    redrive_of_held,
    refused_messages,
    conflicting_payload,
    a_batch_of_many,
];

fn send(world: &World) {
    world.send(&Webhook::new("e", "p"));
}

fn first_attempt_succeeds(world: &mut World) {
    send(world);
    world.settle();
}

fn first_attempt_fails_and_the_second_succeeds(world: &mut World) {
    world.receiver.then([Reply::Status(500)]);
    send(world);
    world.pass_seconds(10);
}

fn no_answer_and_then_success(world: &mut World) {
    world.receiver.then([Reply::Silent]);
    send(world);
    world.pass_seconds(30);
}

fn blocked(world: &mut World) {
    world.receiver.then([Reply::Blocked]);
    send(world);
    world.settle();
}

fn gone_disables_and_a_resume_goes_on(world: &mut World) {
    world.receiver.then([Reply::Status(410)]);
    send(world);
    world.settle();
    world.send(&Webhook::new("f", "p"));
    world.settle();
    world.set_endpoint("p", "active");
    world.pass_seconds(2);
}

fn permanent(world: &mut World) {
    world.receiver.then([Reply::Status(422)]);
    send(world);
    world.settle();
}

fn exhausted_with_a_long_wait(world: &mut World) {
    world.receiver.then([Reply::Status(500), Reply::Refused, Reply::Swallow, Reply::Status(503)]);
    world.send(&Webhook::new("e", "s"));
    world.pass_seconds(400);
    world.sweep("arm");
    world.pass_seconds(800);
}

fn throttled_with_a_hint(world: &mut World) {
    world.receiver.then([Reply::Throttle(100)]);
    send(world);
    world.pass_seconds(110);
}

fn first_attempt_dies_and_its_message_takes_over(world: &mut World) {
    send(world);
    world.until_requests("e", 1);
    world.kill_all();
    world.pass_seconds(280);
}

fn a_retry_dies_and_its_wake_up_takes_over(world: &mut World) {
    world.receiver.then([Reply::Status(500), Reply::Swallow]);
    send(world);
    world.pass_seconds(7);
    world.kill_all();
    world.pass_seconds(280);
}

fn a_retry_dies_and_the_sweep_takes_over(world: &mut World) {
    world.receiver.then([Reply::Status(500), Reply::Swallow]);
    send(world);
    world.pass_seconds(7);
    world.kill_all();
    for message in world.retry.all() {
        world.retry.remove(&message.message_id);
    }
    world.pass_seconds(400);
    world.sweep("reconcile");
    world.pass_seconds(1);
}

fn dies_again_and_again(world: &mut World) {
    send(world);
    for request in 1..=2 {
        world.until_requests("e", request);
        world.kill_all();
        world.pass_seconds(269);
    }
    world.pass_seconds(10);
}

fn the_same_message_three_times(world: &mut World) {
    for _ in 0..3 {
        send(world);
    }
    world.settle();
}

fn cancel_first(world: &mut World) {
    world.cancel("e", "p");
    world.settle();
    send(world);
    world.settle();
}

fn cancel_while_waiting(world: &mut World) {
    world.receiver.then([Reply::Status(500)]);
    send(world);
    world.settle();
    world.cancel("e", "p");
    world.pass_seconds(10);
}

fn cancel_in_flight(world: &mut World) {
    world.receiver.then([Reply::Swallow]);
    send(world);
    world.settle();
    world.cancel("e", "p");
    world.pass_seconds(20);
}

fn cancel_by_an_operator(world: &mut World) {
    world.receiver.then([Reply::Status(500)]);
    send(world);
    world.settle();
    world.may_be_cancelled("e", "p");
    world.operate(&json!({"action": "cancel", "id": "e", "endpoint": "p", "reason": "no"}));
    world.pass_seconds(10);
}

fn hold_and_resume(world: &mut World) {
    world.receiver.then([Reply::Status(500)]);
    send(world);
    world.settle();
    world.set_endpoint("p", "paused");
    world.send(&Webhook::new("f", "p"));
    world.pass_seconds(10);
    world.set_endpoint("p", "active");
    world.pass_seconds(2);
    world.pass_seconds(70);
    world.sweep("reconcile");
}

fn held_until_its_deadline(world: &mut World) {
    world.set_endpoint("p", "paused");
    let by = Some(world.executor.now().plus(60_000));
    world.send(&Webhook { deliver_by: by, ..Webhook::new("e", "p") });
    world.pass_seconds(61);
    world.sweep("reconcile");
}

fn removed_and_back(world: &mut World) {
    world.remove("p");
    send(world);
    world.settle();
    world.register("p");
    world.set_endpoint("p", "active");
    world.pass_seconds(2);
}

fn expires_between_attempts(world: &mut World) {
    world.receiver.then([Reply::Status(500), Reply::Status(500), Reply::Status(500)]);
    let by = Some(world.executor.now().plus(20_000));
    world.send(&Webhook { deliver_by: by, ..Webhook::new("e", "p") });
    world.pass_seconds(60);
}

fn too_late_from_the_start(world: &mut World) {
    let by = Some(world.executor.now().plus(-1));
    world.send(&Webhook { deliver_by: by, ..Webhook::new("e", "p") });
    world.settle();
}

fn long_wait_is_armed(world: &mut World) {
    let at = Some(world.executor.now().plus(1_800_000));
    world.send(&Webhook { deliver_at: at, ..Webhook::new("e", "p") });
    world.pass_seconds(1_100);
    world.sweep("arm");
    world.pass_seconds(701);
}

fn a_lost_wake_up_is_rearmed(world: &mut World) {
    world.receiver.then([Reply::Status(500)]);
    send(world);
    world.settle();
    for message in world.retry.all() {
        world.retry.remove(&message.message_id);
    }
    world.pass_seconds(90);
    world.sweep("reconcile");
    world.settle();
}

fn drained_from_the_intake_dlq(world: &mut World) {
    let body = world.promise(&Webhook::new("e", "p"));
    world.intake_dlq.send(&body, 0);
    world.may_be_cancelled("f", "p");
    world.intake_dlq.send(&json!({"cancel": {"id": "f", "endpoint": "p"}}).to_string(), 0);
    world.sweep("reconcile");
    world.settle();
}

fn drained_from_the_retry_dlq(world: &mut World) {
    world.receiver.then([Reply::Status(500)]);
    send(world);
    world.settle();
    for message in world.retry.all() {
        world.retry.remove(&message.message_id);
        world.retry_dlq.send(&message.body, 0);
    }
    world.pass_seconds(7);
    world.sweep("reconcile");
    world.settle();
}

fn dead_letters(world: &mut World) {
    world.receiver.then([Reply::Status(422), Reply::Status(422)]);
    send(world);
    world.send(&Webhook::new("f", "p"));
    world.settle();
}

fn redrive(world: &mut World) {
    dead_letters(world);
    let proposed = world.operate(&json!({"action": "propose", "filter": {"endpoint": "p"}}));
    world.approve(&proposed, "r");
    world.pass_seconds(2);
    world.operate(&json!({"action": "status", "plan_id": proposed["plan_id"]}));
}

fn redrive_approved_twice(world: &mut World) {
    dead_letters(world);
    let [one, two] = [(); 2].map(|()| world.operate(&json!({"action": "propose", "filter": {"ids": ["e", "f"]}})));
    world.approve(&one, "r1");
    world.approve(&one, "r1");
    world.approve(&one, "r2");
    world.approve(&two, "r3");
    world.sweep("reconcile");
    world.pass_seconds(2);
}

fn redrive_of_held(world: &mut World) {
    world.set_endpoint("p", "paused");
    send(world);
    world.settle();
    let proposed = world.operate(&json!({"action": "propose", "filter": {"state": "held", "endpoint": "p"}}));
    world.approve(&proposed, "r");
    world.pass_seconds(2);
    world.set_endpoint("p", "active");
    world.pass_seconds(2);
}

fn refused_messages(world: &mut World) {
    world.send_refused("hello");
    world.send_refused(&Webhook::new("e", "nobody").body());
    world.send_refused(&json!({"id": "a.b", "endpoint": "p", "body": ""}).to_string());
    world.settle();
}

fn conflicting_payload(world: &mut World) {
    send(world);
    world.send(&Webhook { variant: 1, ..Webhook::new("e", "p") });
    world.settle();
}

fn a_batch_of_many(world: &mut World) {
    world.receiver.then([Reply::Status(200), Reply::Status(500), Reply::Status(422)]);
    for id in ["e", "f", "g", "h"] {
        world.send(&Webhook::new(id, "p"));
    }
    world.send(&Webhook { deliver_at: Some(world.executor.now().plus(DAY_MS / 24)), ..Webhook::new("i", "p") });
    world.cancel("g", "p");
    world.pass_seconds(10);
}
