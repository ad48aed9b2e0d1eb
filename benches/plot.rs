//! Plots, as SVG that reads well on light and dark pages.

use std::{fmt::Write as _, fs, io, path::Path};

/// Lines over one variable.
#[derive(Debug, Clone)]
pub struct Plot {
    /// The name of its file, without ending.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// The variable.
    pub x: Axis,
    /// What was measured.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// What it is, with its unit.
    pub title: &'static str,
    /// Whether equal distances are equal ratios; otherwise it begins at 0.
    pub log: bool,
}

/// A line of the plot.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by rising `x`.
    pub points: Vec<(f64, f64)>,
    /// Whether it is something to compare with: a floor, an aim.
    pub beside: bool,
}

impl Axis {
    /// An axis on which equal distances are equal ratios.
    #[must_use]
    pub const fn log(title: &'static str) -> Self {
        Self { title, log: true }
    }

    /// An axis from 0.
    #[must_use]
    pub const fn linear(title: &'static str) -> Self {
        Self { title, log: false }
    }
}

impl Line {
    /// A line.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, beside: false }
    }

    /// A line to compare with, which is dashed.
    #[must_use]
    pub fn beside(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { beside: true, ..Self::new(name, points) }
    }
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 48.0;
const INNER_HEIGHT: f64 = 300.0;
const BOTTOM: f64 = TOP + INNER_HEIGHT;
const LEGEND_TOP: f64 = BOTTOM + 72.0;
const LEGEND_ROW: f64 = 20.0;
const COLOURS: usize = 8;

/// Colours that are told apart by most eyes, on white and on near black.
const STYLE: &str = "\
.page{fill:#fff}.ink{fill:#1f2328}.faint{stroke:#d1d9e0}.frame{stroke:#59636e}\
.c0 .line{stroke:#0072b2}.c0 .dot{fill:#0072b2}\
.c1 .line{stroke:#d55e00}.c1 .dot{fill:#d55e00}\
.c2 .line{stroke:#008f68}.c2 .dot{fill:#008f68}\
.c3 .line{stroke:#b0468c}.c3 .dot{fill:#b0468c}\
.c4 .line{stroke:#8a6d00}.c4 .dot{fill:#8a6d00}\
.c5 .line{stroke:#3d9bd1}.c5 .dot{fill:#3d9bd1}\
.c6 .line{stroke:#6b4bc8}.c6 .dot{fill:#6b4bc8}\
.c7 .line{stroke:#59636e}.c7 .dot{fill:#59636e}\
.line{fill:none;stroke-width:2}text{font:13px system-ui,sans-serif}\
.title{font-weight:600;font-size:15px}\
@media(prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#e6edf3}.faint{stroke:#2b3138}\
.frame{stroke:#9198a1}\
.c0 .line{stroke:#58a6e0}.c0 .dot{fill:#58a6e0}\
.c1 .line{stroke:#f08a4b}.c1 .dot{fill:#f08a4b}\
.c2 .line{stroke:#3fc79a}.c2 .dot{fill:#3fc79a}\
.c3 .line{stroke:#e38cc4}.c3 .dot{fill:#e38cc4}\
.c4 .line{stroke:#d8b73c}.c4 .dot{fill:#d8b73c}\
.c5 .line{stroke:#9fd3f5}.c5 .dot{fill:#9fd3f5}\
.c6 .line{stroke:#b39cf5}.c6 .dot{fill:#b39cf5}\
.c7 .line{stroke:#9198a1}.c7 .dot{fill:#9198a1}\
}";

/// Where values stand on an axis.
#[derive(Debug)]
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    /// In pixels, where `low` and `high` stand.
    from: f64,
    to: f64,
}

impl Scale {
    fn of(axis: Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0)) {
            low = low.min(value);
            high = high.max(value);
        }
        if !low.is_finite() {
            (low, high) = (1.0, 10.0);
        }
        if axis.log {
            // Whole decades where there are several, and some air where there is one.
            let wide = high / low > 20.0;
            low = if wide { 10f64.powf(low.log10().floor()) } else { low / 1.25 };
            high = if wide { 10f64.powf(high.log10().ceil()) } else { high * 1.25 };
        } else {
            low = 0.0;
            high = if high > 0.0 { high * 1.08 } else { 1.0 };
        }
        Self { log: axis.log, low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let fits = |v: &f64| *v >= self.low * 0.999 && *v <= self.high * 1.001;
        if self.log {
            let (low, high) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let steps: &[f64] = if high - low <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all = (low..=high).flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
            return all.filter(fits).collect();
        }
        let rough = self.high / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|s| s * power).find(|s| *s >= rough);
        let step = step.unwrap_or(power * 10.0);
        (0..=10).map(|n| f64::from(n) * step).filter(fits).collect()
    }
}

/// A number that fits beside an axis.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 999_999.5 => (value / 1e6, " M"),
        v if v >= 9_999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 10.0 || v == 0.0 => 0,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Plot {
    /// The plot as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let x = Scale::of(self.x, points().map(|p| p.0), LEFT, WIDTH - RIGHT);
        let y = Scale::of(self.y, points().map(|p| p.1), BOTTOM, TOP);
        let rows = self.lines.len().div_ceil(2) as f64;
        let height = LEGEND_TOP + rows * LEGEND_ROW;
        let title = escaped(&self.title);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"ink title\" x=\"{LEFT}\" y=\"28\">{title}</text>"
        );
        self.grid(&mut out, &x, &y);
        for (at, line) in self.lines.iter().enumerate() {
            draw(&mut out, line, at % COLOURS, &x, &y);
        }
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self, out: &mut String, x: &Scale, y: &Scale) {
        for tick in x.ticks() {
            let (at, label) = (x.at(tick), short(tick));
            let _ = writeln!(
                out,
                "<path class=\"faint\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/><text class=\"ink\" \
                 x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                BOTTOM + 20.0
            );
        }
        for tick in y.ticks() {
            let (at, label) = (y.at(tick), short(tick));
            let _ = writeln!(
                out,
                "<path class=\"faint\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"ink\" \
                 x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.5
            );
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        let half = f64::midpoint(TOP, BOTTOM);
        let _ = writeln!(
            out,
            "<path class=\"frame\" fill=\"none\" d=\"M{LEFT} {TOP}V{BOTTOM}H{:.1}\"/>\n\
             <text class=\"ink\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text class=\"ink\" transform=\"translate(18 {half:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            BOTTOM + 44.0,
            escaped(self.x.title),
            escaped(self.y.title)
        );
    }

    fn legend(&self, out: &mut String) {
        let column = (WIDTH - LEFT - RIGHT) / 2.0;
        for (at, line) in self.lines.iter().enumerate() {
            let left = LEFT + column * (at % 2) as f64;
            let top = LEGEND_TOP + LEGEND_ROW * (at / 2) as f64;
            let dash = if line.beside { " stroke-dasharray=\"6 4\"" } else { "" };
            let _ = writeln!(
                out,
                "<g class=\"c{}\"><path class=\"line\"{dash} d=\"M{left:.1} {:.1}h28\"/></g>\
                 <text class=\"ink\" x=\"{:.1}\" y=\"{top:.1}\">{}</text>",
                at % COLOURS,
                top - 4.5,
                left + 36.0,
                escaped(&line.name)
            );
        }
    }

    /// Writes it to this folder.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join(format!("{}.svg", self.name)), self.svg())
    }
}

fn draw(out: &mut String, line: &Line, colour: usize, x: &Scale, y: &Scale) {
    let mut path = String::new();
    for (at, (of, value)) in line.points.iter().enumerate() {
        let step = if at == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", x.at(*of), y.at(*value));
    }
    let dash = if line.beside { " stroke-dasharray=\"6 4\"" } else { "" };
    let _ = write!(out, "<g class=\"c{colour}\"><path class=\"line\"{dash} d=\"{path}\"/>");
    for (of, value) in line.points.iter().filter(|_| !line.beside) {
        let (cx, cy) = (x.at(*of), y.at(*value));
        let _ = write!(out, "<circle class=\"dot\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3.2\"/>");
    }
    out.push_str("</g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(log: bool) -> Plot {
        let axis = |title| if log { Axis::log(title) } else { Axis::linear(title) };
        Plot {
            name: "made-up",
            title: "5 < 6".to_owned(),
            x: axis("steps"),
            y: axis("time, ms"),
            lines: vec![
                Line::new("ours", vec![(1.0, 10.0), (1_000.0, 90.0)]),
                Line::beside("floor", vec![(1.0, 5.0), (1_000.0, 50.0)]),
            ],
        }
    }

    #[test]
    fn a_plot_has_titles_units_legend_and_both_lines() {
        let svg = plot(true).svg();
        for part in ["5 &lt; 6", ">steps<", ">time, ms<", ">ours<", ">floor<", "dark"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("class=\"line\"").count(), 4, "lines and legend: {svg}");
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn points_stand_where_their_values_are() {
        let scale = Scale::of(Axis::log(""), [1.0, 1_000.0].into_iter(), 0.0, 300.0);
        let near = |at: f64, wanted: f64| (at - wanted).abs() < 1e-6;
        assert!(near(scale.at(1.0), 0.0) && near(scale.at(10.0), 100.0));
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0, 1_000.0]);
        let scale = Scale::of(Axis::linear(""), [5.0, 10.0].into_iter(), 108.0, 0.0);
        assert!(near(scale.at(0.0), 108.0) && near(scale.at(10.0), 8.0), "{scale:?}");
        assert_eq!(scale.ticks(), [0.0, 5.0, 10.0]);
    }

    #[test]
    fn numbers_beside_an_axis_are_short() {
        let shown = [0.0, 0.05, 0.5, 2.5, 100.0, 5_000.0, 20_000.0, 1e7].map(short);
        assert_eq!(shown, ["0", "0.05", "0.5", "2.5", "100", "5000", "20 k", "10 M"]);
    }
}
