//! Finds tasks that wait for each other in a circle, a deadlock.

use std::collections::{HashMap, HashSet};

/// More than anybody reads.
const MAX_CIRCLES: usize = 16;

/// Circles among tasks, given whom each waits for. Each once, beginning with the one that comes first in `tasks`.
pub(crate) fn find(tasks: &[u64], waits_for: &HashMap<u64, Vec<u64>>) -> Vec<Vec<u64>> {
    let (mut circles, mut done) = (Vec::new(), HashSet::new());
    for start in tasks {
        // The way from the start, with how many of each one's neighbours were tried.
        let mut way: Vec<(u64, usize)> = Vec::new();
        let mut on_way: HashMap<u64, usize> = HashMap::new();
        if done.insert(*start) {
            on_way.insert(*start, 0);
            way.push((*start, 0));
        }
        while let Some((task, tried)) = way.last_mut() {
            let next = waits_for
                .get(task)
                .and_then(|next| next.get(*tried))
                .copied();
            *tried += 1;
            let Some(next) = next else {
                on_way.remove(task);
                way.pop();
                continue;
            };
            if let Some(from) = on_way.get(&next) {
                circles.push(way[*from..].iter().map(|(task, _)| *task).collect());
                if circles.len() >= MAX_CIRCLES {
                    return circles;
                }
            } else if done.insert(next) {
                on_way.insert(next, way.len());
                way.push((next, 0));
            }
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph(edges: &[(u64, u64)]) -> HashMap<u64, Vec<u64>> {
        let mut graph: HashMap<u64, Vec<u64>> = HashMap::new();
        for (from, to) in edges {
            graph.entry(*from).or_default().push(*to);
        }
        graph
    }

    #[test]
    fn a_circle_is_found_once() {
        let check = |edges: &[(u64, u64)], circles: &[&[u64]]| {
            assert_eq!(find(&[1, 2, 3, 4], &graph(edges)), circles);
        };
        check(&[(1, 2), (2, 1)], &[&[1, 2]]);
        check(&[(1, 2), (2, 3), (3, 2), (4, 3)], &[&[2, 3]]);
        check(&[(1, 1)], &[&[1]]);
        check(&[(1, 2), (1, 3), (2, 4), (3, 4)], &[]);
        check(&[(1, 2), (2, 1), (3, 4), (4, 3)], &[&[1, 2], &[3, 4]]);
    }

    proptest! {
        #[test]
        fn what_is_found_is_a_circle(edges in prop::collection::vec((0u64..12, 0u64..12), 0..40)) {
            let graph = graph(&edges);
            let tasks: Vec<u64> = (0..12).collect();
            for circle in find(&tasks, &graph) {
                let next = circle.iter().cycle().skip(1);
                for (from, to) in circle.iter().zip(next) {
                    prop_assert!(graph[from].contains(to));
                }
            }
        }
    }
}
