//! The dashboard as people meet it: Debian's Chromium, driven over the `WebDriver` protocol, against the real program.

#[cfg(test)]
mod attach;
#[cfg(test)]
mod conflicts;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod pa11y;
#[cfg(test)]
mod person;
#[cfg(test)]
mod platform;
