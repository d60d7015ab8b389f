//! The capabilities that this crate owns, and the registry of all.

mod peers;
mod server;

use std::{path::PathBuf, pin::Pin, sync::Arc};

use earshot_capability::{Caller, Dispatcher, Notices, Registry, builtin};

use earshot_checkout::{Checkout, CheckoutKind};

use crate::core::{About, NodeHandle};

pub(crate) use peers::announce_failure;
pub(crate) use server::{Serving, StatusOutput};

/// Builds the dispatcher of a node: every capability, with what waits for its callers.
pub(crate) fn dispatcher(node: &NodeHandle, serving: Serving, boot: String) -> Arc<Dispatcher> {
    let notices = Arc::new(Waiting { node: node.clone() });
    Dispatcher::new(registry(node, serving), notices, boot)
}

/// Builds the dispatcher of a node that has ended: for reading what is declared.
pub(crate) fn alone() -> Arc<Dispatcher> {
    let nowhere = Checkout {
        root: PathBuf::new(),
        kind: CheckoutKind::Folder,
        git_dir: None,
        common_dir: None,
        device: 0,
        inode: 0,
    };
    let about = About {
        checkout: nowhere,
        url: Arc::default(),
        machine: String::new(),
        idle: None,
        checkout_id: String::new(),
        alone: None,
    };
    dispatcher(
        &NodeHandle::ended(about),
        Serving::default(),
        "none".to_owned(),
    )
}

fn registry(node: &NodeHandle, serving: Serving) -> Registry {
    let own = peers::capabilities(node)
        .into_iter()
        .chain(server::capabilities(node, serving));
    Registry::new(
        builtin()
            .into_iter()
            .chain(earshot_mcp::capabilities())
            .chain(own),
    )
}

/// What waits for a caller, as the board keeps it.
#[derive(Debug)]
struct Waiting {
    node: NodeHandle,
}

impl Notices for Waiting {
    fn take<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>> {
        Box::pin(self.node.notices(caller))
    }
}
