//! Random bytes from the operating system, through the only cryptographic library.

/// `N` random bytes.
///
/// # Errors
/// If the operating system returns none. This ends the start, because nothing secure can be made without them.
pub fn bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("the operating system returned no random bytes"))?;
    Ok(bytes)
}

/// A random number in `0.0..1.0` that spreads times. Without randomness it is 0 and everything happens at once, which
/// is slower but not wrong.
pub fn jitter() -> f64 {
    let bytes = bytes::<4>().unwrap_or_default();
    f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
