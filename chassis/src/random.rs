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
