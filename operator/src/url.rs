//! The operator function by its URL. Requests are signed with SigV4, so that AWS itself tells the function who decides:
//! a decision that came this way is verified.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_sdk_sts::config::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use domain::ports::Clock;
use platform::clock::SystemClock;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use url::Url;

use crate::exit::{Exit, Failure};

const WHAT: &str = "asking the operator function";
/// An action may take as long as its function.
const PATIENCE: Duration = Duration::from_secs(70);

/// The URL of the operator function, and who calls it.
pub struct OperatorUrl {
    url: Url,
    region: String,
    credentials: SharedCredentialsProvider,
    http: reqwest::Client,
}

impl OperatorUrl {
    /// That URL, with these credentials.
    pub fn new(url: Url, region: String, credentials: SharedCredentialsProvider) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(Duration::from_secs(3))
            .timeout(PATIENCE)
            .build()
            .expect("these options fit together");
        Self { url, region, credentials, http }
    }

    /// An action and its answer, whatever the answer is.
    pub async fn ask(&self, action: &Value) -> Result<Value, Failure> {
        let body = action.to_string();
        let request = self.http.post(self.url.clone()).header("content-type", "application/json");
        let request = self
            .signature(&body)
            .await?
            .into_iter()
            .fold(request, |request, (name, value)| request.header(name, value));
        let answer = request.body(body).send().await.map_err(|e| unreachable(&e))?;
        let (status, text) = (answer.status().as_u16(), answer.text().await.map_err(|e| unreachable(&e))?);
        read(status, &text)
    }

    /// The headers that sign a request for now.
    async fn signature(&self, body: &str) -> Result<Vec<(String, String)>, Failure> {
        let credentials = self.credentials.provide_credentials().await;
        let credentials = credentials.map_err(|e| Failure::of_aws(WHAT, &format!("CredentialsNotLoaded: {e}")))?;
        let identity = credentials.into();
        let now = u64::try_from(SystemClock.now().0).unwrap_or_default();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("lambda")
            .time(UNIX_EPOCH + Duration::from_millis(now))
            .settings(SigningSettings::default())
            .build()
            .expect("every part was given")
            .into();
        let json = [("content-type", "application/json")];
        let unsigned =
            SignableRequest::new("POST", self.url.as_str(), json.into_iter(), SignableBody::Bytes(body.as_bytes()));
        let signed = unsigned.and_then(|request| sign(request, &parameters));
        let signed = signed
            .map_err(|e| Failure::new(Exit::Own, "signing", format!("{WHAT}: the request cannot be signed: {e}")))?;
        let (instructions, _) = signed.into_parts();
        Ok(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// The action's answer, or what AWS said in its place.
fn read(status: u16, text: &str) -> Result<Value, Failure> {
    let answer = serde_json::from_str::<Value>(text).ok();
    if let Some(answer) = answer.as_ref().filter(|answer| answer.get("ok").is_some()) {
        return Ok(answer.clone());
    }
    let said =
        answer.as_ref().and_then(|answer| answer.get("message").or(answer.get("Message"))?.as_str()).unwrap_or("");
    let failure = match status {
        403 if said.contains("signature") || said.contains("token") => {
            Failure::of_aws(WHAT, &format!("InvalidSignature: {said}"))
        }
        403 => Failure::new(
            Exit::Denied,
            "no_permission",
            format!(
                "{WHAT}: no permission; ask for lambda:InvokeFunctionUrl and lambda:InvokeFunction on its alias `live`, or choose another --profile"
            ),
        ),
        404 => Failure::of_aws(WHAT, "ResourceNotFound"),
        429 => Failure::of_aws(WHAT, "TooManyRequests"),
        502..=504 => Failure::new(
            Exit::Own,
            "operator_function",
            "the operator function failed; its log says why, and repeating is safe",
        ),
        _ => Failure::new(Exit::Own, "operator_function", format!("{WHAT}: unexpected answer with status {status}")),
    };
    Err(Failure { detail: Some(text.to_owned()), ..failure })
}

fn unreachable(error: &reqwest::Error) -> Failure {
    // The URL is left out: it is long, and says nothing that helps.
    let kind = if error.is_timeout() { "timed out" } else { "dispatch failure" };
    Failure { detail: Some(error.to_string()), ..Failure::of_aws(WHAT, kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_sts::config::Credentials;
    use hmac::{Hmac, KeyInit, Mac};
    use serde_json::json;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeMap;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn hmac(key: &[u8], text: &str) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    }

    /// Asks a URL that answers this, and returns the request's head and body besides.
    async fn asked(status: &str, answer: &str) -> (Result<Value, Failure>, String, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let credentials = Credentials::new("AKID", "secret", Some("the/token".to_owned()), None, "test");
        let operator = OperatorUrl::new(url, "eu-west-1".to_owned(), SharedCredentialsProvider::new(credentials));
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            let mut some = [0; 4096];
            loop {
                let read = stream.read(&mut some).await.unwrap();
                request.push_str(std::str::from_utf8(&some[..read]).unwrap());
                let (head, body) = request.split_once("\r\n\r\n").unwrap_or_default();
                if body.ends_with('}') {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    return (head.to_owned(), body.to_owned());
                }
            }
        };
        let action = json!({"action": "plans"});
        let (result, (head, body)) = tokio::join!(operator.ask(&action), served);
        (result, head, body)
    }

    /// Computed by the rules of SigV4, without the library that signs.
    #[tokio::test]
    async fn a_request_carries_a_signature_that_aws_would_compute() {
        let (result, head, body) = asked("200 OK", r#"{"ok":true,"plans":[]}"#).await;
        assert_eq!(result.unwrap(), json!({"ok": true, "plans": []}));
        assert_eq!(body, r#"{"action":"plans"}"#);
        let headers: BTreeMap<String, &str> =
            head.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v)).collect();
        assert_eq!(headers["x-amz-security-token"], "the/token");
        let (stamp, authorization) = (headers["x-amz-date"], headers["authorization"]);
        let scope = format!("{}/eu-west-1/lambda/aws4_request", &stamp[..8]);
        let (before, signature) = authorization.split_once(", Signature=").unwrap();
        let (credential, signed) = before.split_once(", SignedHeaders=").unwrap();
        assert_eq!(credential, format!("AWS4-HMAC-SHA256 Credential=AKID/{scope}"));
        assert!(
            ["content-type", "host", "x-amz-date", "x-amz-security-token"]
                .iter()
                .all(|name| signed.split(';').any(|s| s == *name)),
            "{signed}"
        );
        let lines: String = signed.split(';').map(|name| format!("{name}:{}\n", headers[name])).collect();
        let canonical = format!("POST\n/\n\n{lines}\n{signed}\n{}", hex(&Sha256::digest(&body)));
        let to_sign = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let key = ["eu-west-1", "lambda", "aws4_request"]
            .iter()
            .fold(hmac(b"AWS4secret", &stamp[..8]), |key, part| hmac(&key, part));
        assert_eq!(signature, hex(&hmac(&key, &to_sign)));
    }

    #[tokio::test]
    async fn what_aws_says_in_place_of_an_answer_has_a_remedy() {
        for (status, text, exit, code, words) in [
            ("403 Forbidden", r#"{"Message":"Forbidden"}"#, Exit::Denied, "no_permission", "lambda:InvokeFunctionUrl"),
            (
                "403 Forbidden",
                r#"{"message":"The security token included in the request is expired"}"#,
                Exit::Denied,
                "no_credentials",
                "sign in",
            ),
            (
                "403 Forbidden",
                r#"{"message":"The request signature we calculated does not match"}"#,
                Exit::Denied,
                "no_credentials",
                "sign in",
            ),
            ("404 Not Found", r#"{"Message":null}"#, Exit::Unreachable, "missing", "--stack"),
            ("429 Too Many Requests", "{}", Exit::Unreachable, "throttled", "try again"),
            ("502 Bad Gateway", "Internal Server Error", Exit::Own, "operator_function", "repeating is safe"),
            ("418 Teapot", "short", Exit::Own, "operator_function", "status 418"),
        ] {
            let failure = asked(status, text).await.0.unwrap_err();
            assert_eq!((failure.exit, failure.code.as_str()), (exit, code), "{status} {text}");
            assert!(failure.message.contains(words), "{}", failure.message);
            assert!(failure.detail.is_some());
        }
        let refused = asked("404 Not Found", r#"{"ok":false,"error":{"code":"not_found"}}"#).await.0.unwrap();
        assert_eq!(refused["error"]["code"], "not_found", "an answer of the function is one whatever its status");
    }

    #[tokio::test]
    async fn nobody_at_the_url_is_unreachable() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let credentials = Credentials::new("AKID", "secret", None, None, "test");
        let url = Url::parse(&format!("http://{port}/")).unwrap();
        let operator = OperatorUrl::new(url, "eu-west-1".to_owned(), SharedCredentialsProvider::new(credentials));
        let failure = operator.ask(&json!({})).await.unwrap_err();
        assert_eq!((failure.exit, failure.code.as_str()), (Exit::Unreachable, "unreachable"));
    }
}
