//! The table of routes: each row is a method, a path, its handler, and its OpenAPI operation.

mod approvals;
mod calls;
mod operations;
mod receipts;
mod resolutions;
mod tools;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::openapi::Operation;
use crate::router::Served;

/// One row of the table.
pub(crate) struct Route {
    /// The method, in lowercase as OpenAPI writes it.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Served>,
    pub(crate) operation: Operation,
}

impl Route {
    fn get<H, T>(path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Served>,
        T: 'static,
    {
        Self { method: "get", path, handler: on(MethodFilter::GET, handler), operation }
    }

    fn post<H, T>(path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Served>,
        T: 'static,
    {
        Self { method: "post", path, handler: on(MethodFilter::POST, handler), operation }
    }

    fn delete<H, T>(path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Served>,
        T: 'static,
    {
        Self { method: "delete", path, handler: on(MethodFilter::DELETE, handler), operation }
    }
}

/// Returns every route that is served, in the order of the document.
pub(crate) fn all() -> Vec<Route> {
    [
        operations::routes(),
        calls::routes(),
        tools::routes(),
        receipts::routes(),
        approvals::routes(),
        resolutions::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
