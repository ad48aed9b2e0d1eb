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
    read::{self, List, State},
    text::{safe, time},
};

pub(crate) async fn run(args: &Threads, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let now = home.now().await?;
    let mut list = List::new(home, filter(args));
    let mut rows = Vec::new();
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut count = 0;
    while count < limit {
        let Some(info) = list.next().await? else {
            break;
        };
        // Records that cannot be read are for `verify` to report; the row still says something.
        let found = match read::may_have_died(&info) {
            true => Found::load(home, &info.id).await.ok(),
            false => None,
        };
        let state = read::state(&info, found.as_ref(), now);
        if !args.status.is_empty() && !args.status.contains(&state.status) {
            continue;
        }
        count += 1;
        if out.json {
            out.object(&object(&info, &state))?;
        } else {
            rows.push((info, state));
        }
    }
    if !out.json {
        table(&rows, out)?;
    }
    Ok(code::OK)
}

fn filter(args: &Threads) -> Filter {
    let mut statuses = args.status.clone();
    // A thread that died with a step in doubt still has a row that says `running`.
    if statuses.contains(&Status::InDoubt) && !statuses.contains(&Status::Running) {
        statuses.push(Status::Running);
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
pub(crate) fn style(status: Status) -> Style {
    match status {
        Status::Done => Style::Good,
        Status::InDoubt | Status::Failed | Status::Diverged | Status::Stalled => Style::Alert,
        Status::Running | Status::Waiting | Status::Sleeping => Style::Strong,
        Status::Cancelled => Style::Faint,
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
        state.detail.as_deref().map(safe).unwrap_or_default(),
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
