//! What a decision costs: `cargo test --config 'profile.dev.opt-level=3' -p gateway-policy -- --ignored --nocapture measure`.

use std::hint::black_box;
use std::time::Instant;

use gateway_model::{Principal, SafetyTier};

use super::asked::{Asked, Verb, rule_set};

/// Returns the median nanoseconds of one call over batches.
fn median_nanoseconds(mut call: impl FnMut(u64)) -> u128 {
    let mut samples: Vec<u128> = (0..41)
        .map(|batch| {
            let start = Instant::now();
            for number in 0..200 {
                call(batch * 200 + number);
            }
            start.elapsed().as_nanos() / 200
        })
        .collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn filler(count: usize) -> String {
    (0..count)
        .map(|number| {
            format!("@id(\"h.{number}\") forbid (principal, action == Allternit::Action::\"execute\", resource == Allternit::Tool::\"tool.{number}\");\n")
        })
        .collect()
}

#[test]
#[ignore = "measures time; run it alone, optimised"]
fn measure_a_decision() {
    let filler = filler(1000);
    let reads_paths = r#"@id("home.keys") forbid (principal, action == Allternit::Action::"execute", resource)
        when { context.paths.contains("/workspace/w/key") };"#;
    let asked = Asked::new(Principal::Local, Verb::Execute(None), "echo.test", SafetyTier::T1);
    let asks = Asked::new(Principal::Local, Verb::Execute(None), "wipe", SafetyTier::T3);
    let (asked, asks) = (asked.request(), asks.request());
    let fixed = rule_set(&[("f.cedar", &filler)]).unwrap();
    let varying = rule_set(&[("f.cedar", &filler), ("k.cedar", reads_paths)]).unwrap();
    let hit = median_nanoseconds(|_number| {
        black_box(fixed.decide(&black_box(asked)));
    });
    let miss = median_nanoseconds(|_number| {
        black_box(varying.decide(&black_box(asked)));
    });
    let miss_ask = median_nanoseconds(|_number| {
        black_box(varying.decide(&black_box(asks)));
    });
    let start = Instant::now();
    black_box(rule_set(&[("f.cedar", &filler)]).unwrap());
    let compile = start.elapsed();
    println!(
        "hit {hit} ns, miss {miss} ns, miss that asks {miss_ask} ns, compile of 1000 rules {compile:?}"
    );
}
