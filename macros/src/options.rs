//! What the attribute says.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Error, Expr, ExprPath, Ident, LitStr, Path, Result, Token,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream},
    parse_quote,
    punctuated::Punctuated,
};

use crate::duration::duration;

/// What the function becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A call of `book.guard(..)`.
    Guard,
    /// A call of `ctx.step(..)`.
    Workflow,
}

/// The policies, by their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Read,
    Idempotent,
    Reconcile,
    AtMostOnce,
}

const POLICIES: &[(&str, Policy)] = &[
    ("read", Policy::Read),
    ("idempotent", Policy::Idempotent),
    ("reconcile", Policy::Reconcile),
    ("at_most_once", Policy::AtMostOnce),
];

const NO_NAME: &str = "a step needs a name, in quotes and first: `#[step(\"charge_card\", \
                       idempotent)]`. It is recorded, so that renaming the function does not \
                       rename what was done";

const NO_POLICY: &str = "this step has no policy: say what may happen to it after a crash.\n\
    `read`          it has no effect outside; it runs again if unrecorded\n\
    `idempotent`    the other side honours `op.key()`; it is sent again under that key\n\
    `reconcile`     the other side can be asked whether it happened, by `probe = ..`\n\
    `at_most_once`  neither; a doubt is left to a person";

/// The attribute, read and checked as far as that goes without the function.
pub(crate) struct Options {
    pub(crate) name: LitStr,
    pub(crate) policy: Policy,
    pub(crate) shape: Option<Shape>,
    /// Where `deedbook` is.
    pub(crate) home: Path,
    /// What the body calls its operation, or its attempt.
    pub(crate) operation: Option<Ident>,
    pub(crate) probe: Option<Expr>,
    items: Vec<Item>,
}

/// `word`, `word = value` or `word(values)`.
struct Item {
    word: Ident,
    value: Value,
}

enum Value {
    Nothing,
    Is(Expr),
    Of(Punctuated<Expr, Token![,]>),
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let word = input.call(Ident::parse_any)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            if word == "crate" {
                let path = Path::parse_mod_style(input)?;
                Value::Is(Expr::Path(ExprPath { attrs: Vec::new(), qself: None, path }))
            } else {
                Value::Is(input.parse()?)
            }
        } else if input.peek(syn::token::Paren) {
            let inner;
            parenthesized!(inner in input);
            Value::Of(Punctuated::parse_terminated(&inner)?)
        } else {
            Value::Nothing
        };
        Ok(Self { word, value })
    }
}

impl Item {
    fn is(&self, word: &str) -> bool {
        self.word == word
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::new(self.word.span(), why)
    }

    fn nothing(&self) -> Result<()> {
        match &self.value {
            Value::Nothing => Ok(()),
            _ => Err(self.wrong(format!("`{}` stands alone", self.word))),
        }
    }

    fn expr(&self) -> Result<&Expr> {
        match &self.value {
            Value::Is(expr) => Ok(expr),
            _ => Err(self.wrong(format!("write `{} = ..`", self.word))),
        }
    }

    fn list(&self, how: &str) -> Result<&Punctuated<Expr, Token![,]>> {
        match &self.value {
            Value::Of(list) if !list.is_empty() => Ok(list),
            _ => Err(self.wrong(format!("write `{how}`"))),
        }
    }

    fn ident(&self) -> Result<Ident> {
        let word = word_of(self.expr()?).cloned();
        word.ok_or_else(|| self.wrong(format!("`{}` is given a plain name", self.word)))
    }
}

/// The only word of an expression.
fn word_of(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: LitStr = input.parse().map_err(|_| Error::new(input.span(), NO_NAME))?;
        if name.value().is_empty() {
            return Err(Error::new(name.span(), NO_NAME));
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        let items = Punctuated::<Item, Token![,]>::parse_terminated(input)?;
        Self::of(name, items.into_iter().collect())
    }
}

impl Options {
    fn of(name: LitStr, items: Vec<Item>) -> Result<Self> {
        let mut options = Self {
            policy: policy(&name, &items)?,
            name,
            shape: None,
            home: parse_quote!(::deedbook),
            operation: None,
            probe: None,
            items: Vec::new(),
        };
        for item in items {
            let again = options.items.iter().any(|known| known.word == item.word);
            if again && !item.is("redact") {
                return Err(item.wrong(format!("`{}` is said twice", item.word)));
            }
            options.take(&item)?;
            options.items.push(item);
        }
        if options.policy == Policy::Reconcile && options.probe.is_none() {
            let why = "`reconcile` asks the other side whether it happened: say how, with \
                       `probe = async |op| ..` or `probe = a_function`, which returns a `Probe`";
            return Err(Error::new(options.word("reconcile"), why));
        }
        Ok(options)
    }

    /// What is no call of the builder.
    fn take(&mut self, item: &Item) -> Result<()> {
        let read = self.policy == Policy::Read;
        match item.word.to_string().as_str() {
            "guard" => self.shape = Some(Shape::Guard),
            "workflow" => self.shape = Some(Shape::Workflow),
            "operation" if read => {
                return Err(item.wrong("a `read` has no operation: write `attempt = ..`"));
            }
            "attempt" if !read => {
                return Err(item.wrong("write `operation = ..`, which knows its attempt"));
            }
            "operation" | "attempt" => self.operation = Some(item.ident()?),
            "probe" if self.policy == Policy::Reconcile => {
                self.probe = Some(item.expr()?.clone());
            }
            "probe" => return Err(item.wrong("only `reconcile` has a probe")),
            "crate" => match item.expr()? {
                Expr::Path(path) => self.home = path.path.clone(),
                _ => return Err(item.wrong("write `crate = path::of::deedbook`")),
            },
            _ => {}
        }
        Ok(())
    }

    fn word(&self, word: &str) -> Span {
        let found = self.items.iter().find(|item| item.is(word));
        found.map_or_else(|| self.name.span(), |item| item.word.span())
    }

    fn says(&self, word: &str) -> bool {
        self.items.iter().any(|item| item.is(word))
    }

    /// The calls of the builder, in the order of the attribute.
    pub(crate) fn calls(&self, shape: Shape, arguments: &[&Ident]) -> Result<Vec<TokenStream>> {
        self.check(shape)?;
        let mut calls = Vec::new();
        for item in &self.items {
            calls.extend(self.call(item, shape, arguments)?);
        }
        Ok(calls)
    }

    /// What fits together.
    fn check(&self, shape: Shape) -> Result<()> {
        let identity = self.says("key") || self.says("identified_by");
        if self.says("key") && self.says("identified_by") {
            let why = "`key` and `identified_by` are two identities; choose one";
            return Err(Error::new(self.word("identified_by"), why));
        }
        if self.says("any_content") && !identity {
            let why = "`any_content` needs an identity beside it: `key = ..` or \
                       `identified_by(..)`";
            return Err(Error::new(self.word("any_content"), why));
        }
        if shape == Shape::Workflow && self.says("key") && self.says("by_arguments") {
            let why = "`key` and `by_arguments` are two identities; choose one";
            return Err(Error::new(self.word("by_arguments"), why));
        }
        Ok(())
    }

    fn call(&self, item: &Item, shape: Shape, arguments: &[&Ident]) -> Result<Option<TokenStream>> {
        let word = &item.word;
        let text = word.to_string();
        fits(item, &text, shape, self.policy)?;
        let home = &self.home;
        Ok(Some(match text.as_str() {
            "guard" | "workflow" | "read" | "idempotent" | "reconcile" | "at_most_once" => {
                item.nothing()?;
                return Ok(None);
            }
            "operation" | "attempt" | "probe" | "crate" => return Ok(None),
            "by_arguments" | "any_content" | "abandon" => {
                item.nothing()?;
                quote!(.#word())
            }
            "honoured_for" | "quiet" | "timeout" | "valid_for" => {
                let time = duration(item.expr()?)?;
                quote!(.#word(#time))
            }
            "key" | "within" | "id" => {
                let value = item.expr()?;
                quote!(.#word(::std::string::ToString::to_string(&(#value))))
            }
            "occurrence" | "on_replay" => {
                let value = item.expr()?;
                quote!(.#word(#value))
            }
            "redact" => {
                let places = item.list("redact(\"/card/number\")")?.iter();
                quote!(#(.redact(#places))*)
            }
            "retry" => {
                let retry = retry(item, home)?;
                quote!(.retry(#retry))
            }
            "scope" => {
                let scope = self.scope(item)?;
                quote!(.scope(#home::Scope::#scope))
            }
            "duplicates" => {
                let duplicates = self.duplicates(item)?;
                quote!(.duplicates(#home::Duplicates::#duplicates))
            }
            "identified_by" => identified_by(item, arguments, home)?,
            _ => return Err(item.wrong(unknown(&text))),
        }))
    }

    fn scope(&self, item: &Item) -> Result<TokenStream> {
        let said = item.ident()?;
        if said == "thread" {
            return Ok(quote!(Thread));
        }
        if said != "journal" {
            return Err(Error::new(said.span(), "a scope is `thread` or `journal`"));
        }
        if !self.says("key") && !self.says("by_arguments") {
            return Err(item.wrong(
                "a step of the whole journal has no place in it: give it an identity, with \
                 `key = ..` or `by_arguments`",
            ));
        }
        Ok(quote!(Journal))
    }

    fn duplicates(&self, item: &Item) -> Result<TokenStream> {
        let how = "`duplicates` is `refuse`, `wait(\"30s\")` or `take_over`";
        let said = item.expr()?;
        if let Expr::Call(call) = said
            && word_of(&call.func).is_some_and(|word| word == "wait")
            && let Some(time) = call.args.first()
        {
            let time = duration(time)?;
            return Ok(quote!(Wait(#time)));
        }
        match word_of(said).map(ToString::to_string).as_deref() {
            Some("refuse") => Ok(quote!(Refuse)),
            Some("take_over") if self.policy == Policy::AtMostOnce => Err(item.wrong(
                "a step under `at_most_once` cannot be taken over: what its owner may have done \
                 could not be told; let duplicates wait, or refuse them",
            )),
            Some("take_over") => Ok(quote!(TakeOver)),
            _ => Err(Error::new_spanned(said, how)),
        }
    }
}

fn policy(name: &LitStr, items: &[Item]) -> Result<Policy> {
    let mut found = items.iter().filter_map(|item| {
        let (_, policy) = POLICIES.iter().find(|(word, _)| item.is(word))?;
        Some((item, *policy))
    });
    let (_, policy) = found.next().ok_or_else(|| Error::new(name.span(), NO_POLICY))?;
    match found.next() {
        None => Ok(policy),
        Some((other, _)) => Err(other.wrong("a step has one policy, and this is the second")),
    }
}

/// Whether this may be said of such a function under such a policy.
fn fits(item: &Item, word: &str, shape: Shape, policy: Policy) -> Result<()> {
    let why = match (word, shape) {
        ("honoured_for", _) if policy != Policy::Idempotent => {
            "`honoured_for` is about keys that the other side honours: only under `idempotent`"
        }
        ("quiet", _) if policy != Policy::Reconcile => {
            "`quiet` is about a probe: only under \
                                                        `reconcile`"
        }
        ("within", Shape::Workflow) => {
            "a workflow's step happens in its thread; `within` is for \
                                        guards"
        }
        ("identified_by", Shape::Workflow) => {
            "`identified_by` is for guards; here write \
                                               `key = ..`, or `by_arguments`"
        }
        ("any_content" | "valid_for" | "duplicates" | "on_replay", Shape::Workflow) => {
            "this is for guards: a workflow's step is settled once, and its thread has one run"
        }
        ("by_arguments", Shape::Guard) => {
            "a guard is identified by its arguments unless it says \
                                           `key` or `identified_by`: leave this out"
        }
        ("scope", Shape::Guard) => "a guard's scope is the journal, or what `within = ..` says",
        ("id" | "abandon", Shape::Guard) => "this is for steps of workflows",
        _ => return Ok(()),
    };
    Err(item.wrong(why))
}

fn unknown(word: &str) -> String {
    format!(
        "`{word}` is nothing that a step knows. There are: operation, attempt, probe, \
         honoured_for, quiet, timeout, retry, key, occurrence, redact, crate; for guards within, \
         identified_by, any_content, valid_for, duplicates, on_replay; for workflows \
         by_arguments, scope, id, abandon"
    )
}

fn retry(item: &Item, home: &Path) -> Result<TokenStream> {
    if let Value::Is(expr) = &item.value {
        return Ok(expr.to_token_stream());
    }
    let how = "retry(attempts = 3, first = \"1s\", most = \"60s\")";
    let (mut attempts, mut waits) = (None, Vec::new());
    for part in item.list(how)? {
        let wrong = || Error::new_spanned(part, format!("write `{how}`"));
        let Expr::Assign(assign) = part else { return Err(wrong()) };
        let word = word_of(&assign.left).ok_or_else(wrong)?;
        match word.to_string().as_str() {
            "attempts" => attempts = Some(&assign.right),
            "first" | "most" => {
                let time = duration(&assign.right)?;
                waits.push(quote!(.#word(#time)));
            }
            _ => return Err(wrong()),
        }
    }
    let attempts = attempts.ok_or_else(|| item.wrong("say how many `attempts`"))?;
    Ok(quote!(#home::Retry::attempts(#attempts) #(#waits)*))
}

/// The chosen arguments are a map by their names, too.
fn identified_by(item: &Item, arguments: &[&Ident], home: &Path) -> Result<TokenStream> {
    let mut chosen = Vec::new();
    for part in item.list("identified_by(order, amount)")? {
        let known = word_of(part).filter(|word| arguments.contains(word));
        chosen.push(known.ok_or_else(|| {
            Error::new_spanned(part, "`identified_by` names arguments of the function")
        })?);
    }
    let record = crate::expand::record(&chosen, home);
    Ok(quote!(.identified_by(&#record(#(&#chosen),*))))
}
