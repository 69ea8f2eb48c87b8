//! Session tickets that every node of the fleet can decrypt and that expire at a fixed time.
//!
//! All nodes share a secret seed. Time is divided into epochs of six hours, and the key of an epoch is derived from the
//! seed and the epoch's number, so nodes agree without communication. A ticket is encrypted with the key of its epoch
//! and accepted during that epoch and the two after it; the next epoch is accepted too, for a node whose clock is fast.
//! During a replacement there are two seeds: the first encrypts, both decrypt.
//!
//! A wrong clock or a lost seed costs only full handshakes. Keys of past epochs are wiped when the next is derived, but
//! anyone with the seed can derive them again, so replace the seed regularly.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use contract::time::UnixSeconds;
use rustls::server::ProducesTickets;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// How long one key encrypts.
const EPOCH_SECONDS: i64 = 6 * 3_600;
/// The lifetime announced to clients: a ticket of the first second of its epoch is still accepted then.
const LIFETIME_SECONDS: u32 = 12 * 3_600;
/// The epochs, relative to the current one, whose tickets are accepted.
const OPENING: std::ops::RangeInclusive<i64> = -2..=1;
/// Length of a key's public name, which begins every ticket.
const NAME_BYTES: usize = 16;

/// The clock, as an argument.
pub type Now = Arc<dyn Fn() -> UnixSeconds + Send + Sync>;

/// A secret that all nodes share: 32 random bytes. It cannot be printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TicketSeed([u8; 32]);

impl TicketSeed {
    /// Wraps random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(random)
    }
}

/// Encrypts and decrypts tickets.
pub struct Tickets {
    now: Now,
    keys: ArcSwap<Keys>,
}

struct Keys {
    epoch: i64,
    seeds: Vec<TicketSeed>,
    /// The encrypting key first. Bounded by the number of seeds times the number of epochs.
    by_preference: Vec<Key>,
}

struct Key {
    name: [u8; NAME_BYTES],
    aead: LessSafeKey,
}

impl Tickets {
    /// Encrypts with the first seed, decrypts with any. Without seeds no tickets are issued.
    pub fn new(seeds: Vec<TicketSeed>, now: Now) -> Arc<Self> {
        let keys = Keys::derive(seeds, epoch_of(now()));
        Arc::new(Self { now, keys: ArcSwap::from_pointee(keys) })
    }

    /// Replaces the seeds. To keep all tickets valid, first add the new seed at the end of every node's list, and only
    /// then put it first.
    pub fn replace_seeds(&self, seeds: Vec<TicketSeed>) {
        self.keys.store(Arc::new(Keys::derive(seeds, epoch_of((self.now)()))));
    }

    /// The keys of the current epoch; the first call in an epoch derives them.
    fn keys(&self) -> Arc<Keys> {
        let epoch = epoch_of((self.now)());
        let keys = self.keys.load_full();
        if keys.epoch == epoch {
            return keys;
        }
        // Concurrent calls derive the same keys; if the seeds are replaced meanwhile, the replacement stays.
        let fresh = Arc::new(Keys::derive(keys.seeds.clone(), epoch));
        self.keys.compare_and_swap(&keys, Arc::clone(&fresh));
        fresh
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        !self.keys.load().by_preference.is_empty()
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys();
        let key = keys.by_preference.first()?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        key.aead
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(key.name), &mut sealed)
            .ok()?;
        Some([&key.name[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys();
        // Key names are public, so this lookup need not take constant time.
        let key = keys.by_preference.iter().find(|key| key.name == *name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain_bytes = key.aead.open_in_place(nonce, Aad::from(key.name), &mut sealed).ok()?.len();
        sealed.truncate(plain_bytes);
        Some(sealed)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("epoch", &self.keys.load().epoch).finish_non_exhaustive()
    }
}

impl Keys {
    fn derive(seeds: Vec<TicketSeed>, epoch: i64) -> Self {
        let mut epochs: Vec<_> = OPENING.map(|offset| epoch.saturating_add(offset)).collect();
        // The current epoch first, because the first key encrypts.
        epochs.sort_by_key(|candidate| *candidate != epoch);
        let by_preference =
            seeds.iter().flat_map(|seed| epochs.iter().filter_map(|epoch| Key::derive(seed, *epoch))).collect();
        Self { epoch, seeds, by_preference }
    }
}

impl Key {
    /// `None` only if the library refuses a constant length.
    fn derive(seed: &TicketSeed, epoch: i64) -> Option<Self> {
        const NAME: &[u8] = b"tollhouse session ticket name";
        const SECRET: &[u8] = b"tollhouse session ticket key";
        let source = Salt::new(HKDF_SHA256, b"tollhouse session tickets").extract(&seed.0);
        let epoch = epoch.to_be_bytes();
        let mut name = [0; NAME_BYTES];
        source.expand(&[NAME, &epoch], Bytes(NAME_BYTES)).ok()?.fill(&mut name).ok()?;
        let mut secret = [0; 32];
        source.expand(&[SECRET, &epoch], Bytes(secret.len())).ok()?.fill(&mut secret).ok()?;
        let aead = UnboundKey::new(&AES_256_GCM, &secret).ok().map(LessSafeKey::new);
        secret.zeroize();
        Some(Self { name, aead: aead? })
    }
}

/// An output length for HKDF.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn epoch_of(now: UnixSeconds) -> i64 {
    now.0.div_euclid(EPOCH_SECONDS)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    fn tickets(seeds: &[u8], at: &Arc<AtomicI64>) -> Arc<Tickets> {
        let at = Arc::clone(at);
        let seeds = seeds.iter().map(|byte| TicketSeed::new([*byte; 32])).collect();
        Tickets::new(seeds, Arc::new(move || UnixSeconds(at.load(Ordering::Relaxed))))
    }

    #[test]
    fn nodes_with_one_seed_open_each_others_tickets() {
        let now = Arc::new(AtomicI64::new(1_800_000_000));
        let (one, other, stranger) = (tickets(&[1], &now), tickets(&[1], &now), tickets(&[2], &now));
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(other.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(stranger.decrypt(&ticket), None);
        assert_ne!(one.encrypt(b"session").unwrap(), ticket, "no two tickets are alike");
    }

    #[test]
    fn a_ticket_opens_for_its_lifetime_and_not_beyond_three_epochs() {
        let start = 1_800_000_000 / EPOCH_SECONDS * EPOCH_SECONDS;
        let now = Arc::new(AtomicI64::new(start));
        let tickets = tickets(&[1], &now);
        let ticket = tickets.encrypt(b"session").unwrap();
        for (later, opens) in [
            (0, true),
            (i64::from(LIFETIME_SECONDS), true),
            (3 * EPOCH_SECONDS - 1, true),
            (3 * EPOCH_SECONDS, false),
            (-1, true),
            (-EPOCH_SECONDS - 1, false),
        ] {
            now.store(start + later, Ordering::Relaxed);
            assert_eq!(tickets.decrypt(&ticket).is_some(), opens, "{later} s later");
        }
    }

    #[test]
    fn a_seed_is_replaced_without_losing_tickets() {
        let now = Arc::new(AtomicI64::new(1_800_000_000));
        let tickets = tickets(&[1], &now);
        let ticket = tickets.encrypt(b"session").unwrap();
        tickets.replace_seeds(vec![TicketSeed::new([2; 32]), TicketSeed::new([1; 32])]);
        assert!(tickets.decrypt(&ticket).is_some());
        let fresh = tickets.encrypt(b"session").unwrap();
        tickets.replace_seeds(vec![TicketSeed::new([2; 32])]);
        assert!(tickets.decrypt(&ticket).is_none());
        assert!(tickets.decrypt(&fresh).is_some());
        tickets.replace_seeds(Vec::new());
        assert!(!tickets.enabled());
        assert_eq!(tickets.encrypt(b"session"), None);
    }

    proptest::proptest! {
        #[test]
        fn a_ticket_of_another_key_never_decrypts(mut bytes in proptest::collection::vec(0_u8.., 0..200), flip in 0_usize..300) {
            let now = Arc::new(AtomicI64::new(1_800_000_000));
            let tickets = tickets(&[1], &now);
            proptest::prop_assert_eq!(tickets.decrypt(&bytes), None);
            let mut ticket = tickets.encrypt(&bytes).unwrap();
            proptest::prop_assert_eq!(tickets.decrypt(&ticket), Some(std::mem::take(&mut bytes)));
            let at = flip % ticket.len();
            ticket[at] ^= 1;
            proptest::prop_assert_eq!(tickets.decrypt(&ticket), None);
        }
    }
}
