//! The function that the attribute stands on: what of it is recorded, and what is refused.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Error, FnArg, Ident, ItemFn, Pat, PatIdent, PatType, Result, ReturnType, Type, parse2,
    spanned::Spanned,
};

use crate::options::Shape;

/// A parameter but the first.
pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) kind: Type,
    /// Declared `mut`: it is so in the body.
    pub(crate) mutable: bool,
    /// Neither recorded nor compared.
    pub(crate) hands: bool,
}

/// A function that can become a step.
pub(crate) struct Function {
    /// Without `#[hands]` and `mut`.
    pub(crate) item: ItemFn,
    /// The name of the book or context.
    pub(crate) first: Ident,
    pub(crate) shape: Shape,
    pub(crate) parameters: Vec<Parameter>,
}

impl Function {
    pub(crate) fn read(item: TokenStream, said: Option<Shape>) -> Result<Self> {
        let mut item: ItemFn = parse2(item).map_err(|error| {
            Error::new(error.span(), format!("`#[step]` goes on an `async fn` ({error})"))
        })?;
        check_signature(&item)?;
        let mut inputs = item.sig.inputs.iter_mut();
        let (first, shape) = match inputs.next() {
            Some(FnArg::Typed(first)) => of_first(first, said)?,
            _ => return Err(Error::new_spanned(&item.sig.ident, NO_FIRST)),
        };
        let mut parameters = Vec::new();
        for input in inputs {
            if let FnArg::Typed(typed) = input {
                parameters.push(parameter(typed)?);
            }
        }
        Ok(Self { item, first, shape, parameters })
    }

    /// The parameters that are recorded.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| !parameter.hands)
    }
}

const NO_FIRST: &str = "a step's first parameter is `book: &Deedbook`, which makes it a guarded \
                        call, or `ctx: &Context`, which makes it a workflow's step";

fn check_signature(item: &ItemFn) -> Result<()> {
    let sig = &item.sig;
    if let Some(FnArg::Receiver(receiver)) = sig.inputs.first() {
        return Err(Error::new_spanned(
            receiver,
            "a step is a free function: `self` would be neither recorded nor compared. Take what \
             the body works with as a parameter marked `#[hands]`, and what it depends on as an \
             argument",
        ));
    }
    if sig.asyncness.is_none() {
        return Err(Error::new_spanned(
            sig.fn_token,
            "a step is an `async fn`. For a body that blocks its thread, write the guard by hand, \
             with `call_blocking`",
        ));
    }
    let result = match &sig.output {
        ReturnType::Type(_, kind) => is_result(kind),
        ReturnType::Default => false,
    };
    if !result {
        let at = match &sig.output {
            ReturnType::Type(_, kind) => kind.span(),
            ReturnType::Default => sig.ident.span(),
        };
        return Err(Error::new(
            at,
            "a step returns a `Result`: it can be refused, fail, and be in doubt. Write \
             `Result<T, CallError>` for a guarded call, `deedbook::Result<T>` for a workflow's \
             step",
        ));
    }
    Ok(())
}

fn is_result(kind: &Type) -> bool {
    last_word(kind).is_some_and(|word| word.to_string().ends_with("Result"))
}

/// The last word of a type, behind references.
fn last_word(kind: &Type) -> Option<&Ident> {
    match kind {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        Type::Reference(reference) => last_word(&reference.elem),
        Type::Paren(inner) => last_word(&inner.elem),
        Type::Group(inner) => last_word(&inner.elem),
        _ => None,
    }
}

fn of_first(first: &PatType, said: Option<Shape>) -> Result<(Ident, Shape)> {
    if let Some(hands) = first.attrs.iter().find(|attr| attr.path().is_ident("hands")) {
        return Err(Error::new_spanned(hands, NO_FIRST));
    }
    let word = last_word(&first.ty).map(ToString::to_string);
    let shape = said.or(match word.as_deref() {
        Some("Deedbook") => Some(Shape::Guard),
        Some("Context") => Some(Shape::Workflow),
        _ => None,
    });
    let Some(shape) = shape else {
        let why = format!(
            "{NO_FIRST}. For a type of another name say which it is: \
             `#[step(\"name\", policy, guard)]` or `#[step(\"name\", policy, workflow)]`"
        );
        return Err(Error::new_spanned(&first.ty, why));
    };
    match &*first.pat {
        Pat::Ident(pat) => Ok((pat.ident.clone(), shape)),
        other => Err(Error::new_spanned(other, "give the first parameter a name")),
    }
}

fn parameter(typed: &mut PatType) -> Result<Parameter> {
    let before = typed.attrs.len();
    typed.attrs.retain(|attr| !attr.path().is_ident("hands"));
    let hands = typed.attrs.len() < before;
    if let Type::Reference(reference) = &*typed.ty
        && reference.mutability.is_some()
    {
        return Err(Error::new_spanned(
            reference,
            "a body cannot capture `&mut`: it runs anew for each attempt, and what it changed for \
             one would be there for the next. Take `&`, or a value of your own that is shared, \
             such as `&Mutex<..>`",
        ));
    }
    match &mut *typed.pat {
        Pat::Ident(PatIdent { by_ref: None, subpat: None, ident, mutability, .. }) => {
            Ok(Parameter {
                name: ident.clone(),
                kind: (*typed.ty).clone(),
                mutable: mutability.take().is_some(),
                hands,
            })
        }
        other => Err(Error::new_spanned(
            quote!(#other),
            "give the parameter a name: arguments are recorded under their names",
        )),
    }
}
