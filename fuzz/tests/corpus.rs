//! Every function over its corpus, and over mutations that are the same in every run.

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use fuzz::{TARGETS, Target};

    /// The number of mutations of each input in a normal run.
    const MUTATIONS: u64 = 3_000;

    /// The number of mutations: the normal one, or the environment's for a long run (`bench/run mutations`).
    #[expect(clippy::disallowed_methods, reason = "how long a test is, not a setting of a process")]
    fn mutations() -> u64 {
        std::env::var("FUZZ_MUTATIONS").map_or(MUTATIONS, |text| text.parse().expect("a whole number"))
    }

    fn inputs(target: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        inputs
    }

    /// Steps of xorshift: the same in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound.max(1) as u64).unwrap()
        }
    }

    /// One to four small changes: a flipped bit, a changed byte, or a piece that is removed, doubled or taken from
    /// another input.
    fn mutate(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=random.below(4) {
            let place = random.below(bytes.len());
            let end = (place + random.below(16)).min(bytes.len());
            match random.below(6) {
                0 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
                1 if !bytes.is_empty() => bytes[place] = b"\r\n \t:;,0\x00\xff"[random.below(10)],
                2 => drop(bytes.drain(place..end)),
                3 => {
                    let piece = bytes[place..end].to_vec();
                    bytes.splice(place..place, piece);
                }
                4 if !other.is_empty() => {
                    let from = random.below(other.len());
                    let piece = other[from..(from + random.below(32)).min(other.len())].to_vec();
                    bytes.splice(place..place, piece);
                }
                _ => bytes.insert(place.min(bytes.len()), u8::try_from(random.below(256)).unwrap()),
            }
        }
        bytes
    }

    fn replay(name: &str, target: Target) -> u64 {
        let inputs: Vec<Vec<u8>> = inputs(name).iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert!(inputs.len() >= 3, "{name} has hardly a corpus");
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut runs = 0;
        target(b"");
        for input in &inputs {
            target(input);
            for _ in 0..mutations() {
                let other = &inputs[random.below(inputs.len())];
                target(&mutate(input, other, &mut random));
                runs += 1;
            }
        }
        runs
    }

    /// A test for each target, so that they run in parallel; and a test that all targets have one.
    macro_rules! replayed {
        ($($target:ident)+) => {
            // A4
            mod no_input_of_its_corpus_and_no_mutation_of_one_breaks_a_promise_of {
                $(
                    #[test]
                    fn $target() {
                        let runs = super::replay(stringify!($target), fuzz::$target);
                        println!("{}: {runs} mutations", stringify!($target));
                    }
                )+
            }

            // promise: edge.16
            #[test]
            fn every_target_is_replayed() {
                let replayed = [$(stringify!($target),)+ "boundaries"];
                let mut all: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                assert_eq!(all.len(), replayed.len());
                all.retain(|name| !replayed.contains(name));
                assert_eq!(all, [""; 0], "no test replays them");
            }
        };
    }

    replayed! { chunks dns feed frames gate hostname key proxy_header response snapshot store target upstream_frames }

    fn input(target: &str, name: &str) -> Vec<u8> {
        let path = inputs(target).into_iter().find(|path| path.ends_with(name));
        std::fs::read(path.unwrap_or_else(|| panic!("{target} has no {name}"))).unwrap()
    }

    // Inputs that all fail at the first byte would prove nothing.
    // promise: edge.16
    #[test]
    fn corpus_inputs_reach_their_code() {
        use quota::store::redis::fuzzing;

        for name in ["resolver-cname", "nameserver-cname", "contested", "caa", "apex-proven"] {
            assert_eq!(fuzz::passes(&input("dns", name)), Some(true), "{name}");
        }
        for name in
            ["apex", "nameserver-address", "caa-forbids", "elsewhere", "loop", "no-such-zone", "refused", "lame"]
        {
            assert_eq!(fuzz::passes(&input("dns", name)), Some(false), "{name}");
        }
        let store = |name: &str| input("store", name);
        for name in ["executed", "learning", "spent", "stale", "extremes"] {
            assert!(fuzzing::reply(&store(name)).is_some(), "{name}");
        }
        for name in ["refused", "loading"] {
            assert!(fuzzing::reply(&store(name)).is_none(), "{name}");
        }
        for name in ["view", "view-map"] {
            assert!(fuzzing::view(&store(name)).is_some(), "{name}");
        }
        assert_eq!(fuzzing::stored(&store("bans")).unwrap().0.len(), 2);
        for (name, shared) in [("responses", false), ("responses", true), ("limits", false), ("goaway", false)] {
            let complete = fuzz::complete_responses(&input("upstream_frames", name), shared);
            assert_eq!(complete, 4, "{name}, the tenants share connections: {shared}");
        }
    }

    // A5
    // promise: edge.17
    #[test]
    fn the_gate_the_proxy_and_a_service_agree_where_messages_end() {
        let boundaries = TARGETS.iter().find(|(name, _)| *name == "boundaries").expect("the target").1;
        let (runs, before) = (replay("boundaries", boundaries), fuzz::compared());
        println!("boundaries: {runs} mutations, {before} messages that two parsers took");
        // Parsers that refuse everything agree too.
        assert!(before > runs / 100, "{before} of {runs}");
    }
}
