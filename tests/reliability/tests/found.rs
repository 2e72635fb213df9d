//! What the faults have found, each told as plainly as it can be.

use std::rc::Rc;

use domain::delivery::State;
use domain::id::DeliveryKey;
use reliability::crash::ENDPOINTS;
use reliability::fates::{Mode, Rates};
use reliability::settings::{INTAKE_MAX_RECEIVES, START};
use reliability::story::Webhook;
use reliability::world::World;

fn world(mode: Mode) -> World {
    let world = World::new(1, 2, mode, None);
    for endpoint in ENDPOINTS {
        world.register(endpoint);
    }
    world
}

fn state(world: &World, id: &str) -> (State, u64) {
    let key = DeliveryKey::parse(id, "p").expect("a good key");
    world.table.look(&key, |record| (record.state, record.rev)).expect("there is a record")
}

#[test]
fn a_resume_finds_what_the_index_shows_only_minutes_later() {
    let mut world = world(Mode::Calm);
    world.table.let_indexes_lag(world.clock.clone(), Rc::new(|| 100_000));
    world.schedule();
    world.set_endpoint("p", "paused");
    world.run_until(START.plus(230_000));
    world.send(&Webhook::new("e", "p"));
    world.settle();
    // The reconcile run at 300 s finds nothing that is held, and the release has lasted more than a minute.
    world.set_endpoint("p", "active");
    world.pass_seconds(900);
    assert_eq!(state(&world, "e").0, State::Delivered);
}

#[test]
fn a_resume_of_an_endpoint_that_is_still_removed_does_not_go_round_for_ever() {
    let mut world = world(Mode::Calm);
    world.remove("p");
    world.send(&Webhook::new("e", "p"));
    world.schedule();
    world.settle();
    world.set_endpoint("p", "active");
    world.pass_seconds(7_200);
    let (held, writes) = state(&world, "e");
    assert!(matches!(held, State::Held(_)) && writes < 20, "{held}, {writes} writes");
    world.register("p");
    world.set_endpoint("p", "active");
    world.pass_seconds(10);
    assert_eq!(state(&world, "e").0, State::Delivered);
}

#[test]
fn messages_in_the_dlq_are_not_rejected_as_poison_because_the_table_fails_now_and_then() {
    let mut world = world(Mode::Storm(Rates::default()));
    for number in 0..10 {
        let body = world.promise(&Webhook::new(&format!("e{number}"), "p"));
        world.intake_dlq.send_received(&body, INTAKE_MAX_RECEIVES);
    }
    world.decider.set_down(50);
    world.schedule();
    world.pass_seconds(2_400);
    world.recover(&ENDPOINTS);
    world.judge();
    let rejected = world.table.rejected().len();
    assert_eq!((rejected, world.watch.violations().len()), (0, 0), "{:?}", world.watch.violations());
}
