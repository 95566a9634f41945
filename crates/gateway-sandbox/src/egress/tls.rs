//! TLS of outbound connections: whom it trusts, and the handshake.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway_model::Host;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where operating systems keep the certificate authorities they trust; the first there is read.
const SYSTEM_STORES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];
/// The size of the largest file of certificates that is read.
const MAX_STORE_BYTES: u64 = 8 << 20;

/// Certificate authorities that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The operator's file cannot be read.
    #[error("egress.ca_file: {path} cannot be read", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The operator's file holds no certificate, or one that cannot be used.
    #[error("egress.ca_file: {path}: {reason}; expected certificates in PEM", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The cryptography of this build does not offer TLS 1.2 and 1.3; a fault of this build.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// Whom TLS connections trust.
pub(super) struct Trust {
    connector: TlsConnector,
}

impl Trust {
    pub(super) fn read(ca_file: Option<&Path>) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = SYSTEM_STORES.iter().find_map(|path| read_file(Path::new(path)).ok()) {
            // A store may hold what this build cannot use; the rest of it is of use.
            roots.add_parsable_certificates(
                CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok),
            );
        }
        if let Some(path) = ca_file {
            add_operators(&mut roots, path)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TrustError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Does the handshake; the peer must prove that it is the host.
    pub(super) async fn secure(
        &self,
        host: &Host,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
            Host::Address(address) => ServerName::IpAddress((*address).into()),
        };
        self.connector.connect(name, stream).await
    }
}

/// Says whether a handshake failed because nobody who is trusted signed the certificate.
pub(super) fn is_untrusted(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)))
}

fn add_operators(roots: &mut RootCertStore, path: &Path) -> Result<(), TrustError> {
    let pem =
        read_file(path).map_err(|source| TrustError::Read { path: path.to_owned(), source })?;
    let content = |reason: String| TrustError::Content { path: path.to_owned(), reason };
    let mut added = 0_usize;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| content(error.to_string()))?;
        roots.add(certificate).map_err(|error| content(error.to_string()))?;
        added += 1;
    }
    if added == 0 { Err(content("it holds no certificate".to_owned())) } else { Ok(()) }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::metadata(path)?.len();
    if bytes > MAX_STORE_BYTES {
        let reason = format!("it has {bytes} bytes, expected at most {MAX_STORE_BYTES}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    fs::read(path)
}
