//! What stands in the brackets of the attribute.

use proc_macro2::Span;
use syn::{
    Error, Expr, ExprLit, Ident, Lit, LitStr, Meta, Path, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    spanned::Spanned,
};

/// The classes, for whoever forgot to say one.
const CLASSES: &str = "say what the tool does to the world: #[tool(read)] it has no effect outside; \
    #[tool(idempotent)] the other side honours `call.key()`; #[tool(reconcile = probe)] the other \
    side can be asked; #[tool(at_most_once)] neither; #[tool(mint)] every call makes something new";

/// What stands in the brackets of the attribute.
pub(crate) struct Says {
    pub(crate) class: Class,
    pub(crate) minting: bool,
    pub(crate) journal: bool,
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) identity: Vec<Ident>,
    pub(crate) approval: Option<Expr>,
    pub(crate) honoured_for: Option<Expr>,
    pub(crate) timeout: Option<Expr>,
    pub(crate) retry: Option<Expr>,
}

/// The effect class.
pub(crate) enum Class {
    Read,
    Idempotent,
    AtMostOnce,
    Mint,
    Reconcile(Path),
}

impl Parse for Says {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut class = None;
        let mut says = Self {
            class: Class::Read,
            minting: false,
            journal: false,
            name: None,
            description: None,
            identity: Vec::new(),
            approval: None,
            honoured_for: None,
            timeout: None,
            retry: None,
        };
        for meta in Punctuated::<Meta, Token![,]>::parse_terminated(input)? {
            let word = meta.path().require_ident()?.to_string();
            let found = match word.as_str() {
                "read" => Some(Class::Read),
                "idempotent" => Some(Class::Idempotent),
                "at_most_once" => Some(Class::AtMostOnce),
                "mint" => Some(Class::Mint),
                "reconcile" => Some(Class::Reconcile(probe(&meta)?)),
                _ => None,
            };
            match found {
                Some(_) if class.is_some() => {
                    return Err(Error::new(meta.span(), "a tool has one effect class"));
                }
                Some(found) => class = Some(found),
                None => says.option(&word, &meta)?,
            }
        }
        says.class = class.ok_or_else(|| Error::new(Span::call_site(), CLASSES))?;
        if says.honoured_for.is_some() && !matches!(says.class, Class::Idempotent) {
            let why = "`honoured_for` is about keys: it goes with `idempotent`";
            return Err(Error::new(Span::call_site(), why));
        }
        Ok(says)
    }
}

impl Says {
    fn option(&mut self, word: &str, meta: &Meta) -> syn::Result<()> {
        match word {
            "minting" => {
                meta.require_path_only()?;
                self.minting = true;
            }
            "journal" => {
                meta.require_path_only()?;
                self.journal = true;
            }
            "identity" => {
                let names = Punctuated::<Ident, Token![,]>::parse_terminated;
                self.identity = meta.require_list()?.parse_args_with(names)?.into_iter().collect();
            }
            "name" => self.name = Some(text(meta)?),
            "description" => self.description = Some(text(meta)?),
            "approval" => self.approval = Some(value(meta)?),
            "honoured_for" => self.honoured_for = Some(value(meta)?),
            "timeout" => self.timeout = Some(value(meta)?),
            "retry" => self.retry = Some(value(meta)?),
            _ => {
                let why = "not known here; there are read, idempotent, reconcile = probe, \
                           at_most_once, mint, minting, journal, identity(..), name, description, \
                           approval, honoured_for, timeout, retry";
                return Err(Error::new(meta.span(), why));
            }
        }
        Ok(())
    }
}

fn value(meta: &Meta) -> syn::Result<Expr> {
    Ok(meta.require_name_value()?.value.clone())
}

fn text(meta: &Meta) -> syn::Result<LitStr> {
    match value(meta)? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(Error::new(other.span(), "a text is expected")),
    }
}

fn probe(meta: &Meta) -> syn::Result<Path> {
    let why = "name the function that asks: reconcile = find_refund";
    match meta.require_name_value().map(|pair| &pair.value) {
        Ok(Expr::Path(path)) => Ok(path.path.clone()),
        _ => Err(Error::new(meta.span(), why)),
    }
}
