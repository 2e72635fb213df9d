//! A certificate authority made at start, and the certificates that a receiver may show.

use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Which certificate a receiver shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// For `127.0.0.1` and for every name under `example.test`.
    Good,
    WrongName,
    Expired,
    NotYetValid,
    SelfSigned,
    UnknownAuthority,
    /// A good one, and the client has to show one as well.
    GoodButAsksForOne,
}

struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self { certificate: params.self_signed(&key).unwrap(), issuer: Issuer::new(params, key) }
    }
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::new("test authority"))
}

/// The root that a client has to trust.
pub fn root() -> CertificateDer<'static> {
    authority().certificate.der().clone()
}

/// The same in PEM, as an operator would give it.
pub fn root_pem() -> String {
    authority().certificate.pem()
}

/// A TLS configuration of a receiver that speaks these protocols.
pub fn server(leaf: Leaf, protocols: &[&str]) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let names = match leaf {
        Leaf::WrongName => vec!["other.test".to_owned(), "127.0.0.9".to_owned()],
        _ => vec!["127.0.0.1".to_owned(), "*.example.test".to_owned()],
    };
    let mut params = CertificateParams::new(names).unwrap();
    match leaf {
        Leaf::Expired => params.not_after = date_time_ymd(2020, 1, 1),
        Leaf::NotYetValid => params.not_before = date_time_ymd(2090, 1, 1),
        _ => {}
    }
    let key = KeyPair::generate().unwrap();
    let certificate = match leaf {
        Leaf::SelfSigned => params.self_signed(&key),
        Leaf::UnknownAuthority => params.signed_by(&key, &Authority::new("nobody").issuer),
        _ => params.signed_by(&key, &authority().issuer),
    };
    let chain = vec![certificate.unwrap().der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = if leaf == Leaf::GoodButAsksForOne {
        let mut roots = RootCertStore::empty();
        roots.add(root()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    Arc::new(config)
}
