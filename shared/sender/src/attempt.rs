//! One attempt as the hooks of the HTTP client see it: which addresses were judged for it, and how far it has come. It
//! travels beside the request in a task-local, because the client asks its hooks with a name and nothing else; without a
//! connection pool it connects inside the request's own future, so the hooks find the attempt they work for.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use domain::outcome::Phase;
use http_body::{Body, Frame, SizeHint};

tokio::task_local! {
    /// The attempt whose request is being sent by the current task.
    pub(crate) static CURRENT: Arc<Attempt>;
}

/// What one attempt may dial, and how far it has come.
pub(crate) struct Attempt {
    name: String,
    addresses: Vec<SocketAddr>,
    phase: Mutex<Phase>,
}

impl Attempt {
    /// An attempt for a name with the addresses that were judged for it.
    pub(crate) fn new(name: String, addresses: Vec<SocketAddr>) -> Self {
        Self { name, addresses, phase: Mutex::new(Phase::Connect) }
    }

    /// The judged addresses, if this is the name that they were judged for.
    pub(crate) fn addresses_of(&self, name: &str) -> Option<Vec<SocketAddr>> {
        (!self.addresses.is_empty() && self.name == name).then(|| self.addresses.clone())
    }

    pub(crate) fn reached(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that tells when the request begins to be written. The client looks whether there is a body to write exactly when
/// it writes the head, and never before a connection stands.
pub(crate) struct TrackedBody {
    bytes: Option<Bytes>,
    attempt: Arc<Attempt>,
}

impl TrackedBody {
    pub(crate) fn new(bytes: &[u8], attempt: Arc<Attempt>) -> Self {
        Self { bytes: Some(Bytes::copy_from_slice(bytes)), attempt }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.bytes.take().filter(|b| !b.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.attempt.reached(Phase::Sent);
        // An empty body still says so in `content-length`, as long as nobody has asked for it.
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}
