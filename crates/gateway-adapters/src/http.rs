//! HttpAdapter: runs an Http tool as one request, under the gateway's policy of hosts and addresses.

mod answer;
mod failure;
mod request;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gateway_engine::{Adapter, Completion, Evidence, Job};
use gateway_model::{ErrorKind, HostRules, ToolBinding, ToolError};
use gateway_sandbox::{Egress, Hop, HttpBounds, HttpProgress};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process;

/// Bytes of a successful answer's body; a longer one fails the call.
const MAX_BODY_BYTES: usize = 4 << 20;
/// Bytes of another answer's body that the error carries.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Runs Http tools.
#[derive(Debug, Clone)]
pub struct HttpAdapter {
    egress: Arc<Egress>,
}

impl HttpAdapter {
    /// Returns an adapter whose requests go out by this way.
    pub fn new(egress: Arc<Egress>) -> Self {
        Self { egress }
    }
}

impl Adapter for HttpAdapter {
    fn check(&self, binding: &ToolBinding) -> Result<(), String> {
        match binding {
            ToolBinding::Http(_) => Ok(()),
            ToolBinding::Local { .. }
            | ToolBinding::Sdk { .. }
            | ToolBinding::Subprocess { .. } => {
                Err(format!("a {} tool has no endpoint", binding.tool_type()))
            }
        }
    }

    fn run(&self, job: Job) -> Pin<Box<dyn Future<Output = Completion> + Send>> {
        Box::pin(run(Arc::clone(&self.egress), job))
    }
}

/// Runs one call. Dropping it, like a cancelled call, closes the connection to the peer.
async fn run(egress: Arc<Egress>, job: Job) -> Completion {
    let deadline = Instant::now() + job.time_left();
    let ToolBinding::Http(binding) = &job.tool().binding else {
        let message = format!("a {} tool has no endpoint", job.tool().binding.tool_type());
        return process::refused(ToolError::new(ErrorKind::Unavailable, message).retryable(false));
    };
    let request = match request::of(&job, binding) {
        Ok(request) => request,
        Err(error) => return process::refused(error),
    };
    let rules = match HostRules::of(&job.tool().limits.network) {
        Ok(rules) => rules,
        Err(error) => {
            let message = format!("the tool's network declaration {error}");
            return process::refused(ToolError::new(ErrorKind::PermissionDenied, message));
        }
    };
    let bounds = HttpBounds {
        rules: &rules,
        deadline,
        max_body_bytes: MAX_BODY_BYTES,
        max_error_bytes: MAX_ERROR_BYTES,
        partition: job.tool().digest,
    };
    let progress = HttpProgress::default();
    let (result, hops) = tokio::select! {
        biased;
        () = job.cancel().cancelled() => (Err(failure::cancelled(job.tool(), &progress)), Vec::new()),
        answered = egress.send(request, &bounds, &progress) => match answered {
            Ok(mut response) => {
                let hops = std::mem::take(&mut response.hops);
                (answer::read(&job, response), hops)
            }
            Err(error) => (Err(failure::read(job.tool(), &error, &progress)), Vec::new()),
        },
    };
    let evidence = Evidence { sandbox: sandbox(&hops), ..Evidence::in_process() };
    Completion { result, has_started: progress.is_sent(), evidence }
}

/// Returns what the receipt says of the way: whom the gateway asked, and at which address.
fn sandbox(hops: &[Hop]) -> Value {
    let hops: Vec<Value> = hops
        .iter()
        .map(|Hop { origin, address, status }| {
            json!({ "origin": origin, "address": address.to_string(), "status": status })
        })
        .collect();
    json!({ "tier": "in_process", "network": { "hops": hops } })
}
