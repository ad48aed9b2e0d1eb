//! `doctor`: how it stands with a journal, and what to do.

use std::path::Path;

use deedbook_control::Remote;
use deedbook_journal::{
    checkpointer::StoreError,
    embedded::{Embedded, Examination, Finding, OpenError, Verdict},
};
use serde_json::json;

use crate::{
    args::Doctor,
    failure::{Failure, Outcome, code},
    open::{self, Found},
    out::{JSON_VERSION, Out, Style},
    progress::Teller,
    text::{count, safe},
};

pub(crate) async fn run(args: &Doctor, journal: Option<&Path>, out: &mut Out<'_>) -> Outcome {
    let path = open::path(journal)?;
    let mut teller = Teller::new(&args.watch);
    let mut here = |wait| {
        Embedded::examine(path, &open::options().wait(wait), |progress| {
            teller.tell(progress);
            true
        })
    };
    if args.accept_rollback {
        let seen = here(open::WAIT).map_err(|error| {
            let why = "`--accept-rollback` is about a journal that cannot be opened, and this one \
                       is open";
            open::alone(path, &error, why)
        })?;
        drop(teller);
        return accept(path, &seen, out);
    }
    let not = |error: OpenError| open::failure(path, &error);
    let seen = match open::here_or_there(path, not, here).await? {
        Found::Here(seen) => seen,
        Found::There(home) => there(&home, &mut teller).await?,
    };
    drop(teller);
    match out.json {
        true => out.object(&object(path, &seen))?,
        false => text(&seen, out)?,
    }
    out.flush()?;
    Ok(if seen.worst() == Verdict::Fault { code::NOT_VERIFIED } else { code::OK })
}

/// Has the process that holds the journal examine it.
async fn there(home: &Remote, teller: &mut Teller) -> Result<Examination, Failure> {
    let seen = home.examine(|progress| teller.tell(progress)).await;
    seen.map_err(|error| {
        let why = match error {
            StoreError::Refused { why } => (*why).to_owned(),
            other => other.to_string(),
        };
        Failure::new(format!("{}: {}", safe(&home.owner().to_string()), safe(&why)))
    })
}

fn number(seen: &Examination, verdict: Verdict) -> usize {
    seen.findings.iter().filter(|finding| finding.verdict == verdict).count()
}

fn object(path: &Path, seen: &Examination) -> serde_json::Value {
    let findings = seen.findings.iter().map(|Finding { about, verdict, said, next, .. }| {
        let verdict = verdict.as_str();
        json!({ "about": about, "verdict": verdict, "said": said, "next": next })
    });
    json!({
        "v": JSON_VERSION,
        "journal": path.to_string_lossy(),
        "records": seen.records,
        "faults": number(seen, Verdict::Fault),
        "warnings": number(seen, Verdict::Warning),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn text(seen: &Examination, out: &mut Out<'_>) -> Result<(), Failure> {
    for Finding { about, verdict, said, next, .. } in &seen.findings {
        let style = match verdict {
            Verdict::Good => Style::Good,
            Verdict::Warning | Verdict::Fault => Style::Alert,
            _ => Style::Strong,
        };
        out.styled(style, &format!("{:<7}", verdict.as_str()))?;
        out.piece(&format!("  {about:<9}  {said}"))?;
        out.end()?;
        if !next.is_empty() {
            out.line(&format!("{:<20}next: {next}", ""))?;
        }
    }
    let faults = count(number(seen, Verdict::Fault) as u64, "fault");
    let warnings = count(number(seen, Verdict::Warning) as u64, "warning");
    out.line(&format!("{faults}, {warnings}"))?;
    Ok(())
}

/// Goes on from an older copy, if that is all that is wrong.
fn accept(path: &Path, seen: &Examination, out: &mut Out<'_>) -> Outcome {
    let Some(anchored) = seen.rolled_back_from else {
        return Err(Failure::new("there is no rollback to accept: nothing is known to be missing"));
    };
    if number(seen, Verdict::Fault) > 1 {
        let said = "there are other faults than the rollback; see `deedbook doctor`";
        return Err(Failure::of(code::NOT_VERIFIED, said));
    }
    let opened = Embedded::open(path, open::options().accept_rollback(true));
    let home = opened.map_err(|error| open::failure(path, &error))?;
    let records = home.info().records;
    drop(home);
    let said = format!(
        "accepted: the journal goes on behind {}; it had {anchored}, and what came after is given \
         up",
        count(records, "record")
    );
    let told = match out.json {
        true => out.object(&json!({
            "v": JSON_VERSION,
            "accepted": path.to_string_lossy(),
            "records": records,
            "had": anchored,
        })),
        false => out.line(&said).map_err(Failure::from),
    };
    let told = told.and_then(|()| Ok(out.flush()?));
    told.map(|()| code::OK).map_err(|failure| failure.after(&safe(&said)))
}
