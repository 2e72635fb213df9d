//! The TLS of the client: which roots it trusts, and how it notices that a handshake begins.

use std::sync::Arc;

use domain::outcome::Phase;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, NamedGroup, RootCertStore, pki_types::ServerName};

use crate::attempt::CURRENT;

/// Servers whose choice of a key exchange is remembered.
const REMEMBERED: usize = 256;

/// The bundled roots and these; HTTP/2 is offered before HTTP/1.1.
pub(crate) fn config(extra_roots: impl IntoIterator<Item = CertificateDer<'static>>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    roots.add_parsable_certificates(extra_roots);
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // The client offers these only in a configuration that it made itself.
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tls.resumption = Resumption::store(Arc::new(Handshakes(ClientSessionMemoryCache::new(REMEMBERED))));
    tls
}

/// Reads certificates of authorities in PEM; an empty text has none. The error repeats nothing of the text.
pub(crate) fn parse_roots(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "a certificate is no valid PEM".to_owned())?;
    if certificates.is_empty() && !pem.trim().is_empty() {
        return Err("there is no certificate in it; write PEM with BEGIN CERTIFICATE".to_owned());
    }
    for (index, certificate) in certificates.iter().enumerate() {
        RootCertStore::empty()
            .add(certificate.clone())
            .map_err(|_| format!("certificate {} cannot be a root", index + 1))?;
    }
    Ok(certificates)
}

/// The client's memory of servers. It is asked when a handshake begins, which is how the attempt learns of it. It keeps the
/// key exchange that a server chose, and no session: a resumed one would skip the check of the certificate.
#[derive(Debug)]
struct Handshakes(ClientSessionMemoryCache);

impl ClientSessionStore for Handshakes {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        // Outside of an attempt there is nobody to tell.
        let _ = CURRENT.try_with(|attempt| attempt.reached(Phase::Tls));
        self.0.kx_hint(server)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {}

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(body: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn roots_are_read_from_pem_and_a_wrong_one_is_told_without_repeating_it() {
        use base64::Engine as _;
        let base64 = base64::engine::general_purpose::STANDARD;
        let real: Vec<String> =
            webpki_root_certs::TLS_SERVER_ROOT_CERTS[..2].iter().map(|c| pem(&base64.encode(c))).collect();
        assert_eq!(parse_roots(&real.concat()).unwrap().len(), 2);
        assert!(parse_roots("").unwrap().is_empty() && parse_roots(" \n").unwrap().is_empty());
        for wrong in ["s3cr3t".to_owned(), pem("s3cr3t"), pem("czNjcjN0"), format!("{}{}", real[0], pem("czNjcjN0"))] {
            let reason = parse_roots(&wrong).unwrap_err();
            assert!(!reason.contains("s3cr3t") && !reason.contains("czNjcjN0"), "{reason}");
        }
        assert!(parse_roots(&format!("{}{}", real[0], pem("czNjcjN0"))).unwrap_err().contains("certificate 2"));
    }
}
