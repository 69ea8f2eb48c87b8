//! The account at an authority: stored sealed, created at the first use, and created again if the authority has lost
//! it.

use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use zeroize::Zeroizing;

use super::explain::has_kind;
use super::{AcmeAuthority, NONCES_MAX, retry_nonce};
use crate::issuer::IssueError;

impl AcmeAuthority {
    /// The stored account, or a new one.
    pub(super) async fn account(&self) -> Result<Account, IssueError> {
        let mut known = self.account.lock().await;
        if let Some(account) = &*known {
            return Ok(account.clone());
        }
        let stored = self.stored_account().await?;
        let credentials = if let Some(stored) = stored { stored } else { self.create_account().await? };
        let credentials: AccountCredentials = serde_json::from_slice(&credentials)
            .map_err(|error| IssueError::Unavailable(format!("cannot read the stored account: {error}")))?;
        let builder = Account::builder_with_http(Box::new(self.transport.clone()));
        let account = builder.from_credentials(credentials).await.map_err(|error| self.failed(&error))?;
        *self.account_uri.lock() = Some(account.id().to_owned());
        *known = Some(account.clone());
        Ok(account)
    }

    /// The sealed credentials, opened, if an account is stored.
    pub(super) async fn stored_account(&self) -> Result<Option<Zeroizing<Vec<u8>>>, IssueError> {
        let name = self.account_name();
        let Some(sealed) = self.core.store.setting(&name).await? else { return Ok(None) };
        self.core.sealing.open(&sealed, &name).map(Some).map_err(|_| {
            IssueError::Unavailable("the stored account does not open: was the sealing secret changed?".to_owned())
        })
    }

    /// The name of the account's setting, for which its credentials are sealed.
    fn account_name(&self) -> String {
        format!("acme account {}", self.settings.directory_url)
    }

    /// Creates an account and stores its credentials, unless another process was faster. Returns the stored ones.
    async fn create_account(&self) -> Result<Zeroizing<Vec<u8>>, IssueError> {
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let request = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.settings.external_account.as_ref();
        let external = external.map(|given| ExternalAccountKey::new(given.key_id.clone(), given.hmac_key.reveal()));
        let (account, credentials) = retry_nonce!(Account::builder_with_http(Box::new(self.transport.clone())).create(
            &request,
            self.settings.directory_url.clone(),
            external.as_ref()
        ))
        .map_err(|error| self.failed(&error))?;
        tracing::info!(authority = self.settings.name, account = account.id(), "created an account");
        let credentials = serde_json::to_vec(&credentials).map(Zeroizing::new);
        let credentials = credentials.map_err(|error| IssueError::Unavailable(error.to_string()))?;
        let (name, sealing) = (self.account_name(), &self.core.sealing);
        let kept = self.core.store.remember(&name, &sealing.seal(&credentials, &name)?).await?;
        sealing.open(&kept, &name).map_err(|error| IssueError::Unavailable(error.to_string()))
    }

    /// Fails with this refusal. If the authority has lost our account, deletes it, so that the next order creates a new one.
    pub(super) async fn refused<T>(&self, error: &Error) -> Result<T, IssueError> {
        if has_kind(error, "accountDoesNotExist") {
            self.core.store.forget_setting(&self.account_name()).await?;
            *self.account.lock().await = None;
        }
        Err(self.failed(error))
    }
}
