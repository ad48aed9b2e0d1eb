//! `key`: the operation key that a call would get.

use deedbook_journal::{
    hex,
    id::{Branch, Identity, Name, ThreadId},
    key::{KeyIdentity, KeyScope, Namespace, OperationKey},
    limits::ValueLimits,
    value::canonical,
};

use crate::{
    args::{Key, ScopeArg},
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out},
    read,
    text::safe,
};

pub(crate) fn run(args: &Key, namespace: Option<[u8; 16]>, out: &mut Out<'_>) -> Outcome {
    let namespace = Namespace(args.namespace.or(namespace).unwrap_or_default());
    let key = derive(args, &namespace)?;
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "key": key.as_str(),
            "uuid": key.to_uuid().to_string(),
            "namespace": hex::encode(&namespace.0),
        }))?;
    } else {
        out.line(key.as_str())?;
    }
    Ok(code::OK)
}

fn derive(args: &Key, namespace: &Namespace) -> Result<OperationKey, Failure> {
    let name = |text: &str| Name::new(text).map_err(|e| Failure::usage(safe(&e.to_string())));
    let step = name(&args.step)?;
    let thread = args.thread.as_deref().map(ThreadId::new).transpose();
    let thread = thread.map_err(|e| Failure::usage(safe(&e.to_string())))?;
    let scope = match (args.scope, &thread) {
        (ScopeArg::Journal, _) => KeyScope::Journal,
        (ScopeArg::Thread, Some(thread)) => KeyScope::Thread(thread),
        (ScopeArg::Thread, None) => return Err(Failure::usage("name the thread with `--thread`")),
    };
    let branch = args.branch.iter().map(|b| name(b)).collect::<Result<_, _>>()?;
    let branch = Branch::new(branch).map_err(|e| Failure::usage(safe(&e.to_string())))?;
    let canonical;
    let identity = match (&args.key, &args.by_arguments) {
        (Some(key), _) => {
            Identity::key(key).map_err(|e| Failure::usage(safe(&e.to_string())))?;
            KeyIdentity::Key(key)
        }
        (None, Some(arguments)) => {
            let value = read::value(arguments)?;
            canonical = canonical::of_msgpack(&value, &ValueLimits::new())?;
            KeyIdentity::Arguments { canonical: &canonical, occurrence: args.occurrence }
        }
        (None, None) => KeyIdentity::Positional {
            episode: args.episode,
            branch: &branch,
            occurrence: args.occurrence,
        },
    };
    let step = step.as_str();
    Ok(OperationKey::derive(namespace, scope, step, identity, args.generation))
}
