//! Working without a node: a client that is served alone, and every command where earshot is off.

use std::{path::PathBuf, sync::Arc};

use earshot_capability::{Caller, Code, Declaration, Dispatcher};
use earshot_checkout::{Checkout, CheckoutKind};
use earshot_trust::{Effect, Origin, Surface};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    call::caller_process,
    context::Context,
    error::{CliError, Exit, with_causes},
    printer::say,
};
use crate::{
    capabilities::{self, Serving},
    core::{About, NodeHandle},
    system,
};

/// What brings the others back.
const UNSET: &str = "Unset EARSHOT to be within earshot of the others.";

/// A board of this process's own, which ends with it.
pub(super) struct Alone {
    /// Who owns the board.
    pub(super) node: NodeHandle,
    /// All capabilities.
    pub(super) dispatcher: Arc<Dispatcher>,
    /// Cancelled to end it.
    pub(super) stop: CancellationToken,
}

impl Alone {
    /// Makes a board for the checkout, or the folder, that a command works in.
    ///
    /// # Errors
    /// When there is no such folder, or the system refuses a thread.
    pub(super) fn start(context: &Context, reason: &str) -> Result<Self, CliError> {
        let checkout = checkout(context)?;
        let head = earshot_checkout::head(&checkout);
        let about = About {
            url: Arc::default(),
            machine: system::host_name(),
            idle: None,
            checkout_id: checkout.id().to_string(),
            alone: Some(reason.to_owned()),
            checkout,
        };
        let node = NodeHandle::start_alone(about, head.branch.as_deref()).map_err(|error| {
            let remedy = "Free some threads, or look at the cause.".to_owned();
            CliError::new(Exit::Failed, Code::Unavailable, with_causes(&error), remedy)
        })?;
        let stop = CancellationToken::new();
        let serving = Serving {
            desired_host: "127.0.0.1".to_owned(),
            stop: stop.clone(),
            ..Serving::default()
        };
        let boot = format!("alone-{}", std::process::id());
        let dispatcher = capabilities::dispatcher(&node, serving, boot);
        Ok(Self {
            node,
            dispatcher,
            stop,
        })
    }
}

/// Finds the checkout to work in, where no node's folder is asked for.
///
/// # Errors
/// When `--root` names nothing, or the working directory is gone.
pub(super) fn checkout(context: &Context) -> Result<Checkout, CliError> {
    let start = context.start()?;
    Ok(earshot_checkout::resolve(&start).unwrap_or_else(|_| folder(start)))
}

/// A folder served as it is: the state of its repository is told, not used.
fn folder(root: PathBuf) -> Checkout {
    Checkout {
        root,
        kind: CheckoutKind::Folder,
        git_dir: None,
        common_dir: None,
        device: 0,
        inode: 0,
    }
}

/// Says that a command works alone, where it does.
pub(super) fn say_if_off(context: &Context) {
    if context.environment.off {
        say(&format!(
            "earshot is off, so this is seen by nobody. {UNSET}"
        ));
    }
}

/// Refuses to start a node where earshot is off.
///
/// # Errors
/// Where it is.
pub(super) fn refuse_if_off(context: &Context) -> Result<(), CliError> {
    if !context.environment.off {
        return Ok(());
    }
    let message = "earshot is off, so no node is started or used".to_owned();
    let (exit, code) = (Exit::Refused, Code::Refused);
    Err(CliError::new(exit, code, message, UNSET.to_owned()))
}

/// Calls a capability on a board of this command's own.
///
/// # Errors
/// The capability's own refusal; that there is no node to give an order to.
pub(super) async fn call(
    context: &Context,
    declaration: &Declaration,
    input: Value,
) -> Result<Map<String, Value>, CliError> {
    if declaration.effect == Effect::Operator {
        refuse_if_off(context)?;
    }
    let alone = Alone::start(context, "earshot is off")?;
    let mut caller = Caller::anonymous(Origin::Socket, Surface::Cli);
    caller.cli = caller_process();
    let dispatcher = alone.dispatcher;
    let call = dispatcher.context(Arc::new(caller), dispatcher.request_id());
    let answer = dispatcher.call(declaration.id, call, input).await?;
    let Some(fields) = answer.structured() else {
        unreachable!("only fixtures answer otherwise");
    };
    Ok(fields)
}
