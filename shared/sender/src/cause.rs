//! The cause of a failure in one word. Nothing of an error's text is kept: it may hold the URL.

use std::error::Error;
use std::io::{self, ErrorKind};

use domain::outcome::{NOT_PROCESSED, Outcome, Phase};
use rustls::{AlertDescription, CertificateError};

use crate::resolver::NotJudged;

/// What a failed request comes to, given how far it had come.
pub(crate) fn outcome(error: &reqwest::Error, phase: Phase) -> Outcome {
    if error.is_builder() {
        return Outcome::Blocked { detail: "the request cannot be built".to_owned() };
    }
    let mut word = None;
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if cause.is::<NotJudged>() {
            return Outcome::Blocked { detail: NotJudged.to_string() };
        }
        if let Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) = cause.downcast_ref() {
            // The server ends the handshake after we have ended ours: it has not looked at the request.
            return Outcome::Failed { phase: Phase::Tls, detail: "certificate_required".to_owned() };
        }
        // The cause nearest to the wire says most.
        word = word_of(cause).or(word);
        next = inner(cause);
    }
    if error.is_timeout() {
        word = Some("timeout");
    }
    let unnamed = if phase == Phase::Connect { "connect" } else { "closed" };
    Outcome::Failed { phase, detail: word.unwrap_or(unnamed).to_owned() }
}

/// What lies below this cause. An `io::Error` hides what it wraps from `source`.
fn inner<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => cause.source(),
    }
}

fn word_of(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(match error {
            rustls::Error::InvalidCertificate(certificate) => certificate_word(certificate),
            _ => "tls",
        });
    }
    if let Some(error) = cause.downcast_ref::<h2::Error>() {
        return match error.reason() {
            Some(h2::Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => Some(NOT_PROCESSED),
            _ if error.is_remote() && error.is_go_away() => Some("closed"),
            _ if error.is_remote() => Some("reset"),
            Some(_) => Some("protocol"),
            None => error.get_io().and_then(io_word),
        };
    }
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return match error {
            e if e.is_parse() => Some("protocol"),
            e if e.is_incomplete_message() || e.is_closed() || e.is_canceled() => Some("closed"),
            _ => None,
        };
    }
    io_word(cause.downcast_ref::<io::Error>()?)
}

fn io_word(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Some("refused"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => Some("unreachable"),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Some("reset"),
        ErrorKind::TimedOut => Some("timeout"),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => Some("closed"),
        _ => None,
    }
}

fn certificate_word(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate_expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "certificate_not_valid_yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "certificate_name_mismatch"
        }
        CertificateError::UnknownIssuer => "certificate_unknown_issuer",
        CertificateError::Revoked => "certificate_revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "certificate_purpose",
        _ => "certificate",
    }
}
