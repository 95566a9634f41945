//! The REST face of the gateway.
