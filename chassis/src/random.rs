//! Randomness from the operating system, through the one cryptographic library.

/// `N` random bytes.
///
/// # Errors
/// When the operating system has none to give, which ends start-up: nothing safe can be made without it.
pub fn bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("the operating system gave no random bytes"))?;
    Ok(bytes)
}
