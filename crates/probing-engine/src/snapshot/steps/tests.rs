//! Periods of ranks, made by hand.

use crate::snapshot::steps::{Alignment, Basis, Period, StepEnd};

const SECOND: i64 = 1_000_000_000;
/// Between the ends of a step on two ranks.
const MOMENT: i64 = 1_000_000;

/// A period in which a rank counted steps of the job from 0 on, in a second and three operations each.
fn period(process: usize, of_job: std::ops::Range<i64>, first: i64) -> Period {
    let end = |step: i64| StepEnd {
        step: step - of_job.start + first,
        at_nanos: step * SECOND + process as i64 * MOMENT,
        operations: Some(step * 3),
    };
    Period {
        process,
        host: "here".into(),
        job: Some("here:29500".to_owned()),
        is_counted_by_program: false,
        ends: of_job.clone().map(end).collect(),
    }
}

/// The same without counts of operations.
fn uncounted(mut period: Period) -> Period {
    for end in &mut period.ends {
        end.operations = None;
    }
    period
}

/// What these numbers of a process become.
fn mapped(alignment: &Alignment, process: usize, steps: &[i64]) -> Vec<i64> {
    let map = |step: &i64| alignment.map(process).map_or(*step, |map| map.of(*step));
    steps.iter().map(map).collect()
}

#[test]
fn ranks_that_begin_at_different_steps_share_numbers() {
    let alignment = Alignment::of(vec![period(0, 12..20, 0), period(1, 10..20, 0)], &[]);
    // The one that began first keeps its numbers; steps that have not ended follow.
    assert_eq!(mapped(&alignment, 1, &[0, 9, 10]), [0, 9, 10]);
    assert_eq!(mapped(&alignment, 0, &[0, 7, 8]), [2, 9, 10]);
    assert_eq!(alignment.basis(0), Basis::Operations);
    // Alone, nothing moves.
    let alone = Alignment::of(vec![period(0, 12..20, 0)], &[]);
    assert_eq!(alone.map(0), None);
}

#[test]
fn periods_before_and_after_a_gap_stay_apart() {
    let periods = vec![
        period(0, 0..5, 0),
        period(1, 0..8, 0),
        // Nobody counted steps 8 and 9.
        period(0, 11..15, 6),
        period(1, 10..15, 9),
    ];
    let alignment = Alignment::of(periods, &[]);
    assert_eq!(mapped(&alignment, 0, &[4, 5, 6, 9]), [4, 5, 10, 13]);
    assert_eq!(mapped(&alignment, 1, &[7, 8, 9, 13]), [7, 8, 9, 13]);
}

#[test]
fn without_counts_of_operations_steps_are_aligned_by_time() {
    let periods = vec![
        uncounted(period(0, 10..20, 0)),
        uncounted(period(1, 12..20, 0)),
    ];
    let alignment = Alignment::of(periods, &[]);
    assert_eq!(mapped(&alignment, 1, &[0, 7]), [2, 9]);
    assert_eq!(alignment.basis(1), Basis::Time);
}

/// Rank 1 has passed things on to others, which torch counts, too: its counts are those of later steps.
#[test]
fn counts_that_are_out_of_time_are_not_believed() {
    let mut ahead = period(1, 10..20, 0);
    for end in &mut ahead.ends {
        end.operations = end.operations.map(|operations| operations + 6);
    }
    let alignment = Alignment::of(vec![period(0, 10..20, 0), ahead], &[]);
    assert_eq!(mapped(&alignment, 1, &[0, 7]), [0, 7]);
    assert_eq!(alignment.basis(1), Basis::Time);
}

#[test]
fn ranks_that_do_not_work_together_are_not_aligned() {
    let mut alone = [period(0, 10..20, 0), period(1, 12..20, 0)];
    for period in &mut alone {
        period.job = None;
    }
    let alignment = Alignment::of(alone.map(uncounted).into(), &[]);
    assert_eq!(mapped(&alignment, 1, &[0]), [0]);
    assert_eq!(alignment.basis(0), Basis::Operations);
    assert_eq!(alignment.basis(1), Basis::Nothing);

    // One that ends its steps between those of the other.
    let mut between = uncounted(period(1, 12..20, 0));
    for end in &mut between.ends {
        end.at_nanos += SECOND / 2;
    }
    let alignment = Alignment::of(vec![uncounted(period(0, 10..20, 0)), between], &[]);
    assert_eq!(alignment.basis(1), Basis::Nothing);
}

#[test]
fn a_program_that_counts_is_believed() {
    let told = |mut period: Period| {
        period.is_counted_by_program = true;
        period
    };
    let alignment = Alignment::of(
        vec![
            period(0, 10..20, 0),
            told(period(1, 12..20, 112)),
            told(period(2, 12..20, 112)),
        ],
        &[],
    );
    assert_eq!(mapped(&alignment, 1, &[112]), [112]);
    assert_eq!(mapped(&alignment, 2, &[112]), [112]);
    // Others take over its numbers.
    assert_eq!(mapped(&alignment, 0, &[0, 2]), [110, 112]);
}

#[test]
fn a_process_whose_steps_are_not_known_is_not_aligned() {
    // Beside one that counts, and beside several.
    for periods in [
        vec![period(0, 10..20, 0)],
        vec![period(0, 10..20, 0), period(1, 12..20, 0)],
    ] {
        let alignment = Alignment::of(periods, &[2]);
        assert_eq!(alignment.basis(0), Basis::Operations);
        assert_eq!(alignment.basis(1), Basis::Operations);
        assert_eq!(alignment.basis(2), Basis::Nothing);
    }
    // Where nobody counts there is nothing to compare.
    let alignment = Alignment::of(Vec::new(), &[2]);
    assert_eq!(alignment.basis(2), Basis::Operations);
}

#[test]
fn one_end_that_is_out_of_time_does_not_outvote_the_others() {
    let mut late = period(1, 12..20, 0);
    late.ends[3].at_nanos += 5 * SECOND;
    let alignment = Alignment::of(vec![period(0, 10..20, 0), late], &[]);
    assert_eq!(mapped(&alignment, 1, &[0, 7]), [2, 9]);
    assert_eq!(alignment.basis(1), Basis::Operations);
}

#[test]
fn times_of_two_machines_are_not_compared() {
    // The clock of the other machine is five seconds ahead.
    let elsewhere = |mut period: Period| {
        period.host = "there".into();
        for end in &mut period.ends {
            end.at_nanos += 5 * SECOND;
        }
        period
    };
    let two = || vec![period(0, 10..20, 0), elsewhere(period(1, 12..20, 0))];
    let alignment = Alignment::of(two(), &[]);
    assert_eq!(mapped(&alignment, 1, &[0, 7]), [2, 9]);
    assert_eq!(alignment.basis(1), Basis::Operations);
    // Without counts nothing else is left.
    let alignment = Alignment::of(two().into_iter().map(uncounted).collect(), &[]);
    assert_eq!(alignment.basis(1), Basis::Nothing);
    let later = elsewhere(uncounted(period(1, 50..60, 0)));
    let alignment = Alignment::of(vec![uncounted(period(0, 10..20, 0)), later], &[]);
    assert_eq!(alignment.basis(1), Basis::Nothing);
}

#[test]
fn a_period_beside_no_other_is_placed_only_within_its_job() {
    let after = |job: Option<&str>, from: i64| {
        let mut periods = [
            uncounted(period(0, 10..20, 0)),
            uncounted(period(1, from..from + 5, 0)),
        ];
        for period in &mut periods {
            period.job = job.map(str::to_owned);
        }
        Alignment::of(periods.into(), &[])
    };
    let alignment = after(Some("here:29500"), 30);
    assert_eq!(mapped(&alignment, 1, &[0]), [10]);
    assert_eq!(alignment.basis(1), Basis::Operations);
    assert_eq!(after(None, 30).basis(1), Basis::Nothing);
    // Its first step may be the last one of the other.
    assert_eq!(after(Some("here:29500"), 20).basis(1), Basis::Operations);
    let mut near = uncounted(period(1, 20..25, 0));
    for end in &mut near.ends {
        end.at_nanos -= SECOND - MOMENT;
    }
    let alignment = Alignment::of(vec![uncounted(period(0, 10..20, 0)), near], &[]);
    assert_eq!(alignment.basis(1), Basis::Nothing);
}

#[test]
fn a_program_that_begins_to_count_after_its_first_step_is_believed() {
    let mut period = Period::new(0, &"here".into());
    let end = |step: i64| StepEnd {
        step,
        at_nanos: step * SECOND,
        operations: None,
    };
    period.add(end(0), Some("optimizer"), None);
    assert!(!period.is_counted_by_program);
    period.add(end(100), Some("program"), Some("here:29500".to_owned()));
    period.add(end(101), Some("optimizer"), None);
    assert!(period.is_counted_by_program);
    assert_eq!(period.job.as_deref(), Some("here:29500"));
    assert_eq!(period.ends.len(), 3);
}
