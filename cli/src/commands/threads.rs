//! `threads`: what there is.

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, ThreadInfo},
    operator::Found,
    row::Status,
};

use crate::{
    args::Threads,
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out, Style},
    read::List,
    state::{self, Seen, State},
    text::{safe, time},
};

pub(crate) async fn run(args: &Threads, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let now = home.now().await?;
    let mut list = List::new(home, filter(args));
    let mut rows = Vec::new();
    let doubtful = args.status.contains(&Seen::Is(Status::InDoubt));
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut count = 0;
    while count < limit {
        let Some(info) = list.next().await? else {
            break;
        };
        // Records that cannot be read are for `verify` to report; the row still says something.
        let found = match state::may_say_less(&info) || doubtful && !info.row.status.is_ended() {
            true => Found::load(home, &info.id).await.ok(),
            false => None,
        };
        let state = State::of(&info, found.as_ref(), now);
        if !args.status.is_empty() && !args.status.iter().any(|asked| state.is(*asked)) {
            continue;
        }
        count += 1;
        if out.json {
            out.object(&object(&info, &state))?;
        } else {
            rows.push((info, state));
        }
    }
    if count == 0 && limit > 0 {
        out.note(nothing(args));
    }
    table(&rows, out)?;
    Ok(code::OK)
}

fn nothing(args: &Threads) -> &'static str {
    let of = args.workflow.is_some() || args.prefix.is_some() || !args.status.is_empty();
    if of || args.since.is_some() || args.until.is_some() {
        "no threads that are as asked"
    } else if args.all {
        "no threads: nothing has run on this journal"
    } else {
        "no threads of workflows; `--all` shows Deedbook's own, `steps` guarded steps"
    }
}

fn filter(args: &Threads) -> Filter {
    let row = |seen: &Seen| match *seen {
        Seen::Ready => Status::Running,
        Seen::Is(status) => status,
    };
    let mut statuses: Vec<Status> = args.status.iter().map(row).collect();
    // Whatever its row says, a thread that has not ended may have a step in doubt.
    if statuses.contains(&Status::InDoubt) {
        statuses.extend(Status::ALL.into_iter().filter(|status| !status.is_ended()));
    }
    Filter {
        statuses,
        workflow: args.workflow.as_deref().map(Into::into),
        prefix: args.prefix.as_deref().map(Into::into),
        doubts_only: false,
        created_from: args.since,
        created_before: args.until,
        reserved: args.all,
    }
}

/// A thread as JSON; `show` begins with the same members.
pub(crate) fn object(info: &ThreadInfo, state: &State) -> serde_json::Value {
    serde_json::json!({
        "v": JSON_VERSION,
        "thread": info.id.as_str(),
        "workflow": &*info.row.workflow,
        "status": state.status.as_str(),
        "since": state.since.to_string(),
        "wake_at": info.row.wake_at.map(|t| t.to_string()),
        "detail": state.detail.as_deref(),
        "open_doubts": state.open_doubts,
        "created": info.row.created_at.to_string(),
        "records": info.next,
        "epoch": info.epoch.0,
        "inbox": info.inbox,
        "holder": info.holder.as_deref(),
    })
}

/// How a status stands out.
pub(crate) fn style(status: Seen) -> Style {
    let Seen::Is(status) = status else {
        return Style::Strong;
    };
    match status {
        Status::Done => Style::Good,
        Status::InDoubt | Status::Failed | Status::Diverged | Status::Stalled => Style::Alert,
        Status::Running | Status::Waiting | Status::Sleeping => Style::Strong,
        Status::Cancelled | Status::Idle => Style::Faint,
    }
}

fn table(rows: &[(ThreadInfo, State)], out: &mut Out<'_>) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let head = ["THREAD", "STATUS", "SINCE", "WORKFLOW", "DETAIL"].map(str::to_owned);
    let cells: Vec<[String; 5]> = rows.iter().map(|(info, state)| cells(info, state)).collect();
    let mut widths = [0; 4];
    for row in std::iter::once(&head).chain(&cells) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    line(&head, &widths, None, out)?;
    for (row, (_, state)) in cells.iter().zip(rows) {
        line(row, &widths, Some(style(state.status)), out)?;
    }
    Ok(())
}

fn cells(info: &ThreadInfo, state: &State) -> [String; 5] {
    [
        safe(info.id.as_str()),
        state.status.to_string(),
        time(state.since),
        safe(&info.row.workflow),
        safe(&state.told()),
    ]
}

fn line(
    cells: &[String; 5],
    widths: &[usize; 4],
    status: Option<Style>,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    for (column, cell) in cells.iter().enumerate() {
        match status {
            Some(style) if column == 1 => out.styled(style, cell)?,
            _ => out.piece(cell)?,
        }
        let more = cells.iter().skip(column + 1).any(|c| !c.is_empty());
        if let (true, Some(width)) = (more, widths.get(column)) {
            let pad = width.saturating_sub(cell.chars().count()) + 2;
            out.piece(&" ".repeat(pad))?;
        }
    }
    out.end()?;
    Ok(())
}
