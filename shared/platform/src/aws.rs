//! One configuration for all AWS clients: one HTTP client with one set of roots, explicit timeouts, short backoff.

use std::time::Duration;

use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_sqs::config::SharedHttpClient;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The HTTP client of all AWS clients, with the bundled roots.
pub fn http_client() -> SharedHttpClient {
    let mut roots = TrustStore::empty();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate));
        roots.add_pem_certificate(pem);
    }
    let tls = TlsContext::builder().with_trust_store(roots).build().expect("the bundled roots are valid");
    aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(tls)
        .build_https()
}

/// Loads the configuration from the variables that Lambda sets; nothing is read from disk.
///
/// The SDK itself has no timeout but for connecting, and waits a second before it repeats: both would eat an invocation.
pub async fn load() -> SdkConfig {
    aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http_client())
        .credentials_provider(EnvironmentVariableCredentialsProvider::new())
        .region(EnvironmentVariableRegionProvider::new())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(
            TimeoutConfig::builder()
                .connect_timeout(Duration::from_millis(1_000))
                .operation_attempt_timeout(Duration::from_millis(1_500))
                .operation_timeout(Duration::from_millis(4_000))
                .build(),
        )
        .retry_config(RetryConfig::standard().with_max_attempts(3).with_initial_backoff(Duration::from_millis(50)))
        .load()
        .await
}
