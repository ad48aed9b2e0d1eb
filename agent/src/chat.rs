//! The other side of a conversation: says something, and waits for the reply.

use std::{future::Future as _, marker::PhantomData, task::Poll};

use deedbook::{Deedbook, Error, ErrorKind, ThreadId, ValueLimits, Workflow};
use deedbook_journal::{
    checkpointer::StoreError,
    record::{Header, Kind, Role},
    value,
};
use serde::de::DeserializeOwned;

use crate::{
    Agent, Ended, Opening, Reply,
    agent::{News, What},
    answer::Question,
    perform::{QUESTION, answer_signal},
    turn::{REPLY, Said},
};

/// How much is read at once.
const PAGE: usize = 4 << 20;

/// A conversation with an agent, from outside: `W` is the agent's workflow.
///
/// Everything here may be called again after a crash: a message is answered once, whoever says it
/// how often, under the id that its sender gives it.
///
/// ```
/// use deedbook::Deedbook;
/// use deedbook_agent::{Agent, Chat, Response, Scripted};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let agent = Agent::builder(Scripted::new([Response::text("Good day.")])).build()?;
/// let book = Deedbook::memory().host(agent.clone()).start().await?;
/// let chat = Chat::<Agent>::new(&book, &agent, "conversation-1")?;
/// assert_eq!(chat.say("message-1", "Hello").await?.text, "Good day.");
/// // Sent again by somebody who has not heard the reply: it is the same reply.
/// assert_eq!(chat.say("message-1", "Hello").await?.turn, 1);
/// # book.shutdown().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Chat<W> {
    book: Deedbook,
    agent: Agent,
    thread: ThreadId,
    workflow: PhantomData<fn() -> W>,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy)]
enum Sought<'a> {
    Reply(&'a str),
    Question,
}

impl Sought<'_> {
    fn is(self, what: &What) -> bool {
        match (self, what) {
            (Self::Reply(id), What::Reply(reply)) => reply.id == id,
            (Self::Question, What::Question(_)) => true,
            _ => false,
        }
    }
}

/// Why a chat has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The book says so: the conversation failed, is in doubt, or has diverged, or its journal
    /// failed.
    #[error(transparent)]
    Book(#[from] Error),
    /// The conversation has ended, and has no reply to this message.
    #[error("the conversation has ended without a reply to {0:?}")]
    Unanswered(String),
    /// A record cannot be understood.
    #[error("a record of the conversation is damaged: {0}")]
    Damaged(String),
}

impl<W: Workflow<Input = Opening, Output = Ended>> Chat<W> {
    /// The conversation with this id. It begins with its first message.
    ///
    /// # Errors
    /// The id cannot be one.
    pub fn new(book: &Deedbook, agent: &Agent, thread: impl AsRef<str>) -> Result<Self, ChatError> {
        let thread = ThreadId::new(thread).map_err(Error::from)?;
        let (book, agent) = (book.clone(), agent.clone());
        Ok(Self { book, agent, thread, workflow: PhantomData })
    }

    /// Says something, and waits for the reply: the first message of a conversation and the
    /// later ones, before and after a crash.
    ///
    /// # Errors
    /// As [`Deedbook::run`]: the conversation has ended, is in doubt, or has diverged.
    ///
    /// **Cancel safety.** Dropping the future does not take the message back.
    pub async fn say(&self, id: &str, text: &str) -> Result<Reply, ChatError> {
        if let Some(reply) = self.find(id).await? {
            return Ok(reply);
        }
        self.post(id, text).await?;
        self.reply(id).await
    }

    /// Says something and does not wait.
    ///
    /// # Errors
    /// As [`Deedbook::signal`].
    pub async fn post(&self, id: &str, text: &str) -> Result<(), ChatError> {
        if self.book.status(self.thread.as_str()).await?.is_none() {
            self.book.spawn::<W>(self.thread.as_str(), Opening::chat()).await?;
        }
        let said = Said::Message { id: id.to_owned(), text: text.to_owned() };
        Ok(self.book.signal(self.thread.as_str(), crate::turn::SAY, &said).await?)
    }

    /// Waits for the reply to a message that was said, here or in an earlier life of the program.
    ///
    /// # Errors
    /// As [`say`](Self::say).
    pub async fn reply(&self, id: &str) -> Result<Reply, ChatError> {
        match self.waited(Sought::Reply(id)).await? {
            Some(What::Reply(reply)) => Ok(*reply),
            _ => Err(ChatError::Unanswered(id.to_owned())),
        }
    }

    /// Waits until the agent asks its user something: the first question that is open. `None`
    /// when the conversation has ended.
    ///
    /// # Errors
    /// As [`say`](Self::say).
    pub async fn question(&self) -> Result<Option<Question>, ChatError> {
        match self.waited(Sought::Question).await? {
            Some(What::Question(question)) => Ok(Some(question)),
            _ => Ok(None),
        }
    }

    /// Looks into the records, and then listens, until something is found or the thread ends.
    async fn waited(&self, sought: Sought<'_>) -> Result<Option<What>, ChatError> {
        let mut news = self.agent.0.news.subscribe();
        if let Some(found) = self.look(sought).await? {
            return Ok(Some(found));
        }
        let mut ended = Box::pin(self.book.wait::<W>(self.thread.as_str()));
        loop {
            let next = {
                let mut heard = Box::pin(news.recv());
                std::future::poll_fn(|cx| {
                    if let Poll::Ready(heard) = heard.as_mut().poll(cx) {
                        return Poll::Ready(Ok(heard));
                    }
                    ended.as_mut().poll(cx).map(Err)
                })
                .await
            };
            let found = match next {
                Ok(Ok(News { thread, what })) if thread == self.thread => {
                    sought.is(&what).then_some(what)
                }
                Ok(Ok(_)) => None,
                // So much was said that some of it is gone: it is recorded.
                Ok(Err(_)) => self.look(sought).await?,
                Err(end) => {
                    return match (self.look(sought).await?, end) {
                        (None, Err(error)) => Err(error.into()),
                        (found, _) => Ok(found),
                    };
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    async fn look(&self, sought: Sought<'_>) -> Result<Option<What>, ChatError> {
        Ok(match sought {
            Sought::Reply(id) => self.find(id).await?.map(|reply| What::Reply(Box::new(reply))),
            Sought::Question => self.questions().await?.into_iter().next().map(What::Question),
        })
    }

    async fn find(&self, id: &str) -> Result<Option<Reply>, ChatError> {
        Ok(self.replies().await?.into_iter().find(|reply| reply.id == id))
    }

    /// Every reply so far: durable ones only.
    ///
    /// # Errors
    /// The journal failed.
    pub async fn replies(&self) -> Result<Vec<Reply>, ChatError> {
        self.said(REPLY).await
    }

    /// The questions that wait for an answer: durable ones only.
    ///
    /// # Errors
    /// The journal failed.
    pub async fn questions(&self) -> Result<Vec<Question>, ChatError> {
        let mut open: Vec<Question> = self.said(QUESTION).await?;
        let settled: Vec<String> = self
            .records(|header, _| {
                let answer = header.kind == Kind::Signal;
                let name = header.why.as_deref().filter(|_| answer);
                name.and_then(|name| name.strip_prefix("agent.answer ")).map(str::to_owned)
            })
            .await?;
        open.retain(|question| !settled.contains(&question.call));
        Ok(open)
    }

    /// Answers a question. The first answer counts.
    ///
    /// # Errors
    /// As [`Deedbook::signal`].
    pub async fn answer(&self, call: &str, text: &str) -> Result<(), ChatError> {
        Ok(self.book.signal(self.thread.as_str(), &answer_signal(call), text).await?)
    }

    /// Ends the conversation once everything that was said is answered, and waits for that.
    ///
    /// # Errors
    /// As [`Deedbook::wait`].
    pub async fn end(&self) -> Result<Ended, ChatError> {
        match self.book.signal(self.thread.as_str(), crate::turn::SAY, &Said::End).await {
            // It has ended already.
            Err(error) if error.kind() == ErrorKind::Refused => {}
            other => other?,
        }
        Ok(self.book.wait::<W>(self.thread.as_str()).await?)
    }

    /// The arguments of every step of this name.
    async fn said<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, ChatError> {
        let limits = ValueLimits::new();
        self.records(|header, args| {
            let place = header.place.as_ref().filter(|_| header.kind == Kind::StepIntent)?;
            (place.name.as_str() == name).then_some(())?;
            value::decode(args?, &limits).ok()
        })
        .await
    }

    async fn records<T>(
        &self,
        take: impl Fn(&Header, Option<&[u8]>) -> Option<T>,
    ) -> Result<Vec<T>, ChatError> {
        let store = self.book.checkpointer();
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(n) = from {
            let page = match store.read(&self.thread, n, PAGE).await {
                Err(StoreError::NoSuchThread) => return Ok(all),
                other => other.map_err(Error::from)?,
            };
            for (_, record) in &page.items {
                let header = Header::parse(&record.header)
                    .map_err(|error| ChatError::Damaged(error.to_string()))?;
                all.extend(take(&header, record.payload(Role::Args).map(|p| &*p.bytes)));
            }
            from = page.next;
        }
        Ok(all)
    }
}
