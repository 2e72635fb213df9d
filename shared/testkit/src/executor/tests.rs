use std::cell::RefCell;
use std::rc::Rc;

use domain::time::Millis;

use super::*;

type Log = Rc<RefCell<Vec<(char, i64)>>>;

fn executor() -> (Executor, Log) {
    (Executor::new(VirtualClock::new(Millis(0), 1)), Log::default())
}

fn task(executor: &Executor, log: &Log, name: char, waits: &'static [i64]) -> TaskId {
    let (log, inner) = (Rc::clone(log), executor.clone());
    executor.spawn(async move {
        for ms in waits {
            inner.after(*ms).await;
            log.borrow_mut().push((name, inner.now().0));
        }
    })
}

#[test]
fn time_moves_only_when_nothing_is_ready_and_timers_ring_in_order() {
    let (executor, log) = executor();
    task(&executor, &log, 'a', &[0, 50]);
    task(&executor, &log, 'b', &[10, 0, 5]);
    executor.run(|_| 0);
    assert_eq!(*log.borrow(), [('a', 0), ('b', 10), ('b', 10), ('b', 15), ('a', 50)]);
    assert_eq!(executor.ended(), [(1, End::Done), (0, End::Done)]);
}

#[test]
fn the_choice_decides_who_goes_and_the_same_choices_make_the_same_run() {
    let order = |pick: fn(usize) -> usize| {
        let (executor, log) = executor();
        task(&executor, &log, 'a', &[0, 0]);
        task(&executor, &log, 'b', &[0, 0]);
        executor.run(pick);
        log.borrow().iter().map(|(name, _)| *name).collect::<String>()
    };
    assert_eq!(order(|ready| ready - 1), "bbaa");
    assert_eq!((order(|_| 0), order(|_| 0)), ("abab".to_owned(), "abab".to_owned()));
}

#[test]
fn a_killed_task_goes_no_further_whoever_kills_it() {
    let (executor, log) = executor();
    let slow = task(&executor, &log, 'a', &[10, 10, 10]);
    executor.kill_at(slow, Millis(15));
    let inner = executor.clone();
    executor.spawn(async move {
        inner.after(1).await;
        inner.die().await;
    });
    executor.run(|_| 0);
    assert_eq!(*log.borrow(), [('a', 10)]);
    assert_eq!((executor.ended(), executor.alive()), (vec![(1, End::Killed), (0, End::Killed)], 0));
}

#[test]
fn many_points_of_one_task_are_picked_one_by_one() {
    let (executor, log) = executor();
    let (inner, seen) = (executor.clone(), Rc::clone(&log));
    executor.spawn(async move {
        // More than thirty, so that the children are polled only when they are woken.
        let children = (0..40).map(|i| {
            let (inner, seen) = (inner.clone(), Rc::clone(&seen));
            async move {
                inner.point().await;
                seen.borrow_mut().push(('c', i));
            }
        });
        futures_util::future::join_all(children).await;
    });
    executor.run(|ready| ready - 1);
    let order: Vec<i64> = log.borrow().iter().map(|(_, i)| *i).collect();
    assert_eq!(order, (0..40).rev().collect::<Vec<_>>());
}
