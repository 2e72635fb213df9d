//! The functions with their ports behind the gate, as the template would wire them.

use std::rc::Rc;

use deliver::deliver::Deliver;
use deliver::handler::Handler;
use dlq_sweep::handler::{Depth, Queues, Sweep};
use domain::ports::{DeadQueue, StoreError};
use redrive_approve::handler::Operator;
use testkit::executor::WorkerClock;
use testkit::hostile::{Gate, Hostile};
use testkit::memory::{MemoryDeliveries, MemoryEndpoints, MemoryPayloads};
use testkit::queue::MemoryQueue;
use testkit::samples::LIMITS;

use crate::broken::{Broken, Bug};
use crate::receiver::Receiver;
use crate::settings::{MOST_ATTEMPTS, PATIENCE, RETENTION, RETRY_ARN, TIMING, defaults};

type Table = Hostile<Broken<MemoryDeliveries>>;
type Payloads = Hostile<Broken<MemoryPayloads>>;
type Dead = Hostile<MemoryQueue>;
type DeliverHandler = Handler<Table, Payloads, Hostile<MemoryEndpoints>, Receiver, WorkerClock>;
type SweepHandler = Sweep<Table, Payloads, Dead, Dead, QueueDepth, WorkerClock>;

/// The depth of a queue in memory.
pub(crate) struct QueueDepth(MemoryQueue);

impl Depth for QueueDepth {
    async fn visible(&self) -> Result<u64, StoreError> {
        DeadQueue::visible(&self.0).await
    }
}

/// An instance of `deliver`, with a clock of its own.
pub(crate) struct DeliverWorker {
    pub(crate) handler: Rc<DeliverHandler>,
    pub(crate) clock: WorkerClock,
}

/// An instance of `dlq-sweep`.
pub(crate) struct SweepWorker {
    pub(crate) handler: Rc<SweepHandler>,
    pub(crate) clock: WorkerClock,
}

/// An instance of `redrive-approve`.
pub(crate) struct OperatorWorker {
    pub(crate) handler: Rc<Operator<Table, Payloads, WorkerClock>>,
}

/// Everything that functions are wired to.
pub(crate) struct Ports {
    pub(crate) gate: Gate,
    pub(crate) bug: Option<Bug>,
    pub(crate) table: MemoryDeliveries,
    pub(crate) payloads: MemoryPayloads,
    pub(crate) endpoints: MemoryEndpoints,
    pub(crate) receiver: Receiver,
    pub(crate) intake_dlq: MemoryQueue,
    pub(crate) retry_dlq: MemoryQueue,
    pub(crate) retry: MemoryQueue,
}

impl Ports {
    fn table(&self) -> Table {
        Hostile::new(Broken::new(self.table.clone(), self.bug), self.gate.clone())
    }

    fn payloads(&self) -> Payloads {
        Hostile::new(Broken::new(self.payloads.clone(), self.bug), self.gate.clone())
    }

    pub(crate) fn deliver(&self) -> DeliverWorker {
        let clock = WorkerClock::new(self.gate.executor.clone());
        let handler = Handler {
            retry_queue_arn: RETRY_ARN.to_owned(),
            deliver: Deliver {
                deliveries: self.table(),
                payloads: self.payloads(),
                endpoints: Hostile::new(self.endpoints.clone(), self.gate.clone()),
                sender: self.receiver.clone(),
                clock: clock.clone(),
                settings: deliver::config::Settings {
                    limits: LIMITS,
                    defaults: defaults(),
                    timing: TIMING,
                    retention: RETENTION,
                },
            },
        };
        DeliverWorker { handler: Rc::new(handler), clock }
    }

    pub(crate) fn sweep(&self) -> SweepWorker {
        let clock = WorkerClock::new(self.gate.executor.clone());
        let handler = Sweep {
            deliveries: self.table(),
            payloads: self.payloads(),
            queues: Queues {
                intake_dlq: Hostile::new(self.intake_dlq.clone(), self.gate.clone()),
                retry_dlq: Hostile::new(self.retry_dlq.clone(), self.gate.clone()),
                retry: QueueDepth(self.retry.clone()),
            },
            clock: clock.clone(),
            settings: dlq_sweep::config::Settings {
                patience: PATIENCE,
                retention: RETENTION,
                max_attempts: MOST_ATTEMPTS,
                limits: LIMITS,
            },
        };
        SweepWorker { handler: Rc::new(handler), clock }
    }

    pub(crate) fn operator(&self) -> OperatorWorker {
        let handler = Operator {
            store: self.table(),
            payloads: self.payloads(),
            clock: WorkerClock::new(self.gate.executor.clone()),
            retention: RETENTION,
            alias: "live".to_owned(),
            two_people: false,
        };
        OperatorWorker { handler: Rc::new(handler) }
    }
}
