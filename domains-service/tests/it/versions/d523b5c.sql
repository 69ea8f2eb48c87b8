PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO _sqlx_migrations VALUES(1,'start','2026-11-23 21:10:39',1,X'6748c48729c3b6d2e4531d02024ba38ceafd8b64af464c7275ca388a08e4eb839506caf45c5656bb2bd521b8a9ee4af9',771689);
INSERT INTO _sqlx_migrations VALUES(2,'acme','2026-11-23 21:10:39',1,X'dd7d571de0041e2707741ac89ea719804a8d0a13dfbf032dd6b16ba7cc53e9433473e8261e3d08fba22d19d4498947d2',341182);
INSERT INTO _sqlx_migrations VALUES(3,'webhooks','2026-11-23 21:10:39',1,X'45f24947b565296118d5b8d164a443f47f86c6ca00a8a1c1e7d6a8a919db96c395f9c60d55a5d82e3237ccb16b57b8ee',316665);
INSERT INTO _sqlx_migrations VALUES(4,'dashboard','2026-11-23 21:10:39',1,X'f16ca40d00899fe923100370255a85360f5c0eeba92ebf367fb95c76136a4f57481fa3416d8f939cffdda236c59a8d36',285569);
INSERT INTO _sqlx_migrations VALUES(5,'order events','2026-11-23 21:10:39',1,X'02ebb183f31ffd3cf08598a5ecab7a1f97c0535a006c0de6cb3eb0b69b376ab7bfb2a6e9bbdca4ef28f82d48156294c3',168553);
INSERT INTO _sqlx_migrations VALUES(6,'sealing','2026-11-23 21:10:39',1,X'1e0f2f1ba74af5b12aedcca68b82a669855e4bd1f23376c7abd06e803fe4953a72b6b9b27912b701d653c986a5621fd8',315383);
INSERT INTO _sqlx_migrations VALUES(7,'keys at work','2026-11-23 21:10:39',1,X'd1dcff06adce1758052290da99565fba3e13564f1cbefc47575099f93c6ea12e12901c91424741a71ffdd3495613cac7',297868);
CREATE TABLE revision_counter (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    current BIGINT NOT NULL,
    oldest  BIGINT NOT NULL
);
INSERT INTO revision_counter VALUES(1,1781481600013,1781481600000);
CREATE TABLE changes (
    revision BIGINT PRIMARY KEY,
    effect   TEXT NOT NULL,
    at_ms    BIGINT NOT NULL
);
INSERT INTO changes VALUES(1781481600001,'{"put":{"site":{"hostname":"api.apps.tollhouse.dev","serves":{"platform":{"upstream":"domains","access":"key"}},"redirect":null}}}',1781481600000);
INSERT INTO changes VALUES(1781481600002,'{"put":{"site":{"hostname":"dashboard.apps.tollhouse.dev","serves":{"platform":{"upstream":"dashboard","access":"public"}},"redirect":null}}}',1781481600000);
INSERT INTO changes VALUES(1781481600003,'{"put":{"project":{"id":"demo","plan":"pro","limits":{"per_minute":300,"per_day":10000},"access":"key","upstream":"orders","suspended":false}}}',1781481600000);
INSERT INTO changes VALUES(1781481600004,'{"put":{"site":{"hostname":"demo.apps.tollhouse.dev","serves":{"project":"demo"},"redirect":null}}}',1781481600000);
INSERT INTO changes VALUES(1781481600005,'{"put":{"project":{"id":"shut","plan":"free","limits":{"per_minute":60,"per_day":1000},"access":"key","upstream":"orders","suspended":false}}}',1781481600000);
INSERT INTO changes VALUES(1781481600006,'{"put":{"project":{"id":"shut","plan":"free","limits":{"per_minute":60,"per_day":1000},"access":"key","upstream":"orders","suspended":true}}}',1781481600000);
INSERT INTO changes VALUES(1781481600007,'{"put":{"key":{"digest":"_lDXEShTHN8-7KaFmmMtp8zW3H7TxSreuTsyPtGGHEI","id":"key_acr4xijp6fskyxke","project":"demo","environment":"live","scopes":["orders:read","orders:write"],"expires_at":1801353600}}}',1781481600000);
INSERT INTO changes VALUES(1781481600008,'{"put":{"key":{"digest":"2BvT3tYVnwHnnFCuxAqXkm_400F3yy_CPUKIG--a6BI","id":"key_pluwzhui3vw4iqsd","project":"demo","environment":"live","scopes":["orders:read"],"expires_at":null}}}',1781481600000);
INSERT INTO changes VALUES(1781481600009,'{"remove":{"key":"2BvT3tYVnwHnnFCuxAqXkm_400F3yy_CPUKIG--a6BI"}}',1781481600000);
INSERT INTO changes VALUES(1781481600010,'{"put":{"certificate":{"hostname":"shop.localhost","chain_pem":"-----BEGIN CERTIFICATE-----\nMIIBhjCCASugAwIBAgIQVID4RwxaJo6F5zvtIzQx2DAKBggqhkjOPQQDAjAhMR8w\nHQYDVQQDDBZyY2dlbiBzZWxmIHNpZ25lZCBjZXJ0MB4XDTI2MDYxNDIzMDEwMFoX\nDTI2MDkxMzAwMDEwMFowADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABElZYVLu\nhSEv9egx6hUfxyDpK0qo6lKOhX2fThHSFrAAHX0jJvdp9rb3uR8rlgcxVhurMy32\ncrm2/Kg7mv4+GPmjZjBkMB8GA1UdIwQYMBaAFDhNoPprMlbVtLILy/6KBbTMdazt\nMBwGA1UdEQEB/wQSMBCCDnNob3AubG9jYWxob3N0MA4GA1UdDwEB/wQEAwIHgDAT\nBgNVHSUEDDAKBggrBgEFBQcDATAKBggqhkjOPQQDAgNJADBGAiEAoQguyi2hIfVk\nZlhYCEHnqD9a+ysne13ZammtN+sco9wCIQC07vzw9kXA0jtG1K5RqHzuREfXDfQX\nP9skKhz0sWevoA==\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nMIIBeDCCAR6gAwIBAgIUBc9Tcs6Dfj5Ka/cskZGWm5ETEwkwCgYIKoZIzj0EAwIw\nITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWduZWQgY2VydDAgFw03NTAxMDEwMDAw\nMDBaGA80MDk2MDEwMTAwMDAwMFowITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWdu\nZWQgY2VydDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPCShkC4ZWdGHHyQFxYA\nWoEHJob+j/z9LbZrvv50ETpelKqnaFpN5nmd/qOlLtRlv3TIWkSTsbT+uCVGB+cQ\nDHCjMjAwMB0GA1UdDgQWBBQ4TaD6azJW1bSyC8v+igW0zHWs7TAPBgNVHRMBAf8E\nBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCiKV9roNKFgFcXaKDUX9EtSQaJ0FYC\noodc/fX1c5WGOAIgYxtjpj5ZwlLTdDWBKyzC6qLUvk3MXbbvCd2pSQykNxc=\n-----END CERTIFICATE-----\n","key":"696acd6ff2071376.J3kCFveY10x4y1sYAzxTIYsm+xQk6fnseJ1wGfZRp0C84O6mAiQktj+Ck+bfwGJtyjaQIyF4LjJ5GpV37MYhdhQKMF1zKZGDfFcjDKUf+VFiv3ws8CoX30CP1X3b18gOwJqi+Zg8JVSWeUZrepVEvt1FjwM9OMIg0itJqRxb5ptFWyQ+ivih8bXQozQSa4uGDBkdTv/k8+qiDqNrNkaifb81ouIWenJrFp0vnpbzgH/r6qNUyBRF55L/l9+uAm0BaOJlPfDX+4jDxy656/V08wbdHBoNG77IMaPhgXD2pliBRAq6QCNyUauwKtccBzBubIYafvaLUfq33zw/67tNs97y6j4Mm9DyUTqahQE=","not_before":1781478060,"not_after":1789257660}}}',1781481660000);
INSERT INTO changes VALUES(1781481600011,'{"put":{"site":{"hostname":"shop.localhost","serves":{"project":"demo"},"redirect":null}}}',1781481660000);
INSERT INTO changes VALUES(1781481600012,'{"put":{"certificate":{"hostname":"old.localhost","chain_pem":"-----BEGIN CERTIFICATE-----\nMIIBhDCCASqgAwIBAgIQQN5FU4HZ2mbFvI5gzxmAaDAKBggqhkjOPQQDAjAhMR8w\nHQYDVQQDDBZyY2dlbiBzZWxmIHNpZ25lZCBjZXJ0MB4XDTI2MDYxNDIzMDEwMFoX\nDTI2MDkxMzAwMDEwMFowADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOWXGkTj\npEpNyQrqApZ0d+fsY1sCXXfbSOjR0tG59sIAsqchH33d+hpovKslF2y9pMMpErDM\nhZa6AuPD3ut/js+jZTBjMB8GA1UdIwQYMBaAFDhNoPprMlbVtLILy/6KBbTMdazt\nMBsGA1UdEQEB/wQRMA+CDW9sZC5sb2NhbGhvc3QwDgYDVR0PAQH/BAQDAgeAMBMG\nA1UdJQQMMAoGCCsGAQUFBwMBMAoGCCqGSM49BAMCA0gAMEUCIQDbeqs34g+K+Y9a\nVm0W9PnsavTdkVN3Joea4nFI55a29AIgSqSWAXK2WnxDMkCRXRwhbn8tEqiyIkpz\nyO3DAQ54cA0=\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nMIIBeDCCAR6gAwIBAgIUBc9Tcs6Dfj5Ka/cskZGWm5ETEwkwCgYIKoZIzj0EAwIw\nITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWduZWQgY2VydDAgFw03NTAxMDEwMDAw\nMDBaGA80MDk2MDEwMTAwMDAwMFowITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWdu\nZWQgY2VydDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPCShkC4ZWdGHHyQFxYA\nWoEHJob+j/z9LbZrvv50ETpelKqnaFpN5nmd/qOlLtRlv3TIWkSTsbT+uCVGB+cQ\nDHCjMjAwMB0GA1UdDgQWBBQ4TaD6azJW1bSyC8v+igW0zHWs7TAPBgNVHRMBAf8E\nBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCiKV9roNKFgFcXaKDUX9EtSQaJ0FYC\noodc/fX1c5WGOAIgYxtjpj5ZwlLTdDWBKyzC6qLUvk3MXbbvCd2pSQykNxc=\n-----END CERTIFICATE-----\n","key":"696acd6ff2071376.+HGfDUD7mqqw5fKNsQ5U+j3dbcx1IiynfPEyxfCTma7GfC9j+sCuDyjxpWHzhIEnY3ynG1VgPz1/qhS17FYmOR9N+Pis/CruklPR2zjB12kzwkC5I8jJJZdGPh12VPOnzfe/5yEZGL/Un+UmDstMl+zYv4scR+nYbaO9HNcTY77WQwErLs9HVt5xD9YgLEIEmr4RlHly77eyEkhAtZKLifPsZe84hv1GkujF9S4yg7O4Cujee6mHLqtcDP18oqcbPlTePUxvEIzwal5TD/9NjS71umztPQXEJUynJefvUeqm1vbSdO6CkG7KJFZyBklFpVIOpb3fssm2PLDLk7XmYV7vcQbSsS6vZQp7e/Q=","not_before":1781478060,"not_after":1789257660}}}',1781481660000);
INSERT INTO changes VALUES(1781481600013,'{"put":{"site":{"hostname":"old.localhost","serves":{"project":"demo"},"redirect":{"to":"shop.localhost","status":"307"}}}}',1781481660000);
CREATE TABLE entities (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
);
INSERT INTO entities VALUES('site','api.apps.tollhouse.dev','{"site":{"hostname":"api.apps.tollhouse.dev","serves":{"platform":{"upstream":"domains","access":"key"}},"redirect":null}}','');
INSERT INTO entities VALUES('site','dashboard.apps.tollhouse.dev','{"site":{"hostname":"dashboard.apps.tollhouse.dev","serves":{"platform":{"upstream":"dashboard","access":"public"}},"redirect":null}}','');
INSERT INTO entities VALUES('project','demo','{"project":{"id":"demo","plan":"pro","limits":{"per_minute":300,"per_day":10000},"access":"key","upstream":"orders","suspended":false}}','');
INSERT INTO entities VALUES('site','demo.apps.tollhouse.dev','{"site":{"hostname":"demo.apps.tollhouse.dev","serves":{"project":"demo"},"redirect":null}}','');
INSERT INTO entities VALUES('project','shut','{"project":{"id":"shut","plan":"free","limits":{"per_minute":60,"per_day":1000},"access":"key","upstream":"orders","suspended":true}}','');
INSERT INTO entities VALUES('key','_lDXEShTHN8-7KaFmmMtp8zW3H7TxSreuTsyPtGGHEI','{"key":{"digest":"_lDXEShTHN8-7KaFmmMtp8zW3H7TxSreuTsyPtGGHEI","id":"key_acr4xijp6fskyxke","project":"demo","environment":"live","scopes":["orders:read","orders:write"],"expires_at":1801353600}}','');
INSERT INTO entities VALUES('certificate','shop.localhost','{"certificate":{"hostname":"shop.localhost","chain_pem":"-----BEGIN CERTIFICATE-----\nMIIBhjCCASugAwIBAgIQVID4RwxaJo6F5zvtIzQx2DAKBggqhkjOPQQDAjAhMR8w\nHQYDVQQDDBZyY2dlbiBzZWxmIHNpZ25lZCBjZXJ0MB4XDTI2MDYxNDIzMDEwMFoX\nDTI2MDkxMzAwMDEwMFowADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABElZYVLu\nhSEv9egx6hUfxyDpK0qo6lKOhX2fThHSFrAAHX0jJvdp9rb3uR8rlgcxVhurMy32\ncrm2/Kg7mv4+GPmjZjBkMB8GA1UdIwQYMBaAFDhNoPprMlbVtLILy/6KBbTMdazt\nMBwGA1UdEQEB/wQSMBCCDnNob3AubG9jYWxob3N0MA4GA1UdDwEB/wQEAwIHgDAT\nBgNVHSUEDDAKBggrBgEFBQcDATAKBggqhkjOPQQDAgNJADBGAiEAoQguyi2hIfVk\nZlhYCEHnqD9a+ysne13ZammtN+sco9wCIQC07vzw9kXA0jtG1K5RqHzuREfXDfQX\nP9skKhz0sWevoA==\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nMIIBeDCCAR6gAwIBAgIUBc9Tcs6Dfj5Ka/cskZGWm5ETEwkwCgYIKoZIzj0EAwIw\nITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWduZWQgY2VydDAgFw03NTAxMDEwMDAw\nMDBaGA80MDk2MDEwMTAwMDAwMFowITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWdu\nZWQgY2VydDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPCShkC4ZWdGHHyQFxYA\nWoEHJob+j/z9LbZrvv50ETpelKqnaFpN5nmd/qOlLtRlv3TIWkSTsbT+uCVGB+cQ\nDHCjMjAwMB0GA1UdDgQWBBQ4TaD6azJW1bSyC8v+igW0zHWs7TAPBgNVHRMBAf8E\nBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCiKV9roNKFgFcXaKDUX9EtSQaJ0FYC\noodc/fX1c5WGOAIgYxtjpj5ZwlLTdDWBKyzC6qLUvk3MXbbvCd2pSQykNxc=\n-----END CERTIFICATE-----\n","key":"696acd6ff2071376.J3kCFveY10x4y1sYAzxTIYsm+xQk6fnseJ1wGfZRp0C84O6mAiQktj+Ck+bfwGJtyjaQIyF4LjJ5GpV37MYhdhQKMF1zKZGDfFcjDKUf+VFiv3ws8CoX30CP1X3b18gOwJqi+Zg8JVSWeUZrepVEvt1FjwM9OMIg0itJqRxb5ptFWyQ+ivih8bXQozQSa4uGDBkdTv/k8+qiDqNrNkaifb81ouIWenJrFp0vnpbzgH/r6qNUyBRF55L/l9+uAm0BaOJlPfDX+4jDxy656/V08wbdHBoNG77IMaPhgXD2pliBRAq6QCNyUauwKtccBzBubIYafvaLUfq33zw/67tNs97y6j4Mm9DyUTqahQE=","not_before":1781478060,"not_after":1789257660}}','696acd6ff2071376');
INSERT INTO entities VALUES('site','shop.localhost','{"site":{"hostname":"shop.localhost","serves":{"project":"demo"},"redirect":null}}','');
INSERT INTO entities VALUES('certificate','old.localhost','{"certificate":{"hostname":"old.localhost","chain_pem":"-----BEGIN CERTIFICATE-----\nMIIBhDCCASqgAwIBAgIQQN5FU4HZ2mbFvI5gzxmAaDAKBggqhkjOPQQDAjAhMR8w\nHQYDVQQDDBZyY2dlbiBzZWxmIHNpZ25lZCBjZXJ0MB4XDTI2MDYxNDIzMDEwMFoX\nDTI2MDkxMzAwMDEwMFowADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOWXGkTj\npEpNyQrqApZ0d+fsY1sCXXfbSOjR0tG59sIAsqchH33d+hpovKslF2y9pMMpErDM\nhZa6AuPD3ut/js+jZTBjMB8GA1UdIwQYMBaAFDhNoPprMlbVtLILy/6KBbTMdazt\nMBsGA1UdEQEB/wQRMA+CDW9sZC5sb2NhbGhvc3QwDgYDVR0PAQH/BAQDAgeAMBMG\nA1UdJQQMMAoGCCsGAQUFBwMBMAoGCCqGSM49BAMCA0gAMEUCIQDbeqs34g+K+Y9a\nVm0W9PnsavTdkVN3Joea4nFI55a29AIgSqSWAXK2WnxDMkCRXRwhbn8tEqiyIkpz\nyO3DAQ54cA0=\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nMIIBeDCCAR6gAwIBAgIUBc9Tcs6Dfj5Ka/cskZGWm5ETEwkwCgYIKoZIzj0EAwIw\nITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWduZWQgY2VydDAgFw03NTAxMDEwMDAw\nMDBaGA80MDk2MDEwMTAwMDAwMFowITEfMB0GA1UEAwwWcmNnZW4gc2VsZiBzaWdu\nZWQgY2VydDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPCShkC4ZWdGHHyQFxYA\nWoEHJob+j/z9LbZrvv50ETpelKqnaFpN5nmd/qOlLtRlv3TIWkSTsbT+uCVGB+cQ\nDHCjMjAwMB0GA1UdDgQWBBQ4TaD6azJW1bSyC8v+igW0zHWs7TAPBgNVHRMBAf8E\nBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCiKV9roNKFgFcXaKDUX9EtSQaJ0FYC\noodc/fX1c5WGOAIgYxtjpj5ZwlLTdDWBKyzC6qLUvk3MXbbvCd2pSQykNxc=\n-----END CERTIFICATE-----\n","key":"696acd6ff2071376.+HGfDUD7mqqw5fKNsQ5U+j3dbcx1IiynfPEyxfCTma7GfC9j+sCuDyjxpWHzhIEnY3ynG1VgPz1/qhS17FYmOR9N+Pis/CruklPR2zjB12kzwkC5I8jJJZdGPh12VPOnzfe/5yEZGL/Un+UmDstMl+zYv4scR+nYbaO9HNcTY77WQwErLs9HVt5xD9YgLEIEmr4RlHly77eyEkhAtZKLifPsZe84hv1GkujF9S4yg7O4Cujee6mHLqtcDP18oqcbPlTePUxvEIzwal5TD/9NjS71umztPQXEJUynJefvUeqm1vbSdO6CkG7KJFZyBklFpVIOpb3fssm2PLDLk7XmYV7vcQbSsS6vZQp7e/Q=","not_before":1781478060,"not_after":1789257660}}','696acd6ff2071376');
INSERT INTO entities VALUES('site','old.localhost','{"site":{"hostname":"old.localhost","serves":{"project":"demo"},"redirect":{"to":"shop.localhost","status":"307"}}}','');
CREATE TABLE projects (
    id           TEXT PRIMARY KEY,
    salt         TEXT NOT NULL,
    plan         TEXT NOT NULL,
    per_minute   BIGINT,
    per_day      BIGINT,
    access       TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    suspended    BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    deployed_at  BIGINT,
    unpaid_since BIGINT
);
INSERT INTO projects VALUES('demo','aI-a-BoFpfL3HkrHqapqaA','pro',NULL,NULL,'key','orders',0,1781481600000,1781481600000,1781481600000,NULL);
INSERT INTO projects VALUES('shut','IiMPfZa1804O7e_NwcbQIw','free',NULL,NULL,'key','orders',1,1781481600000,1781481600000,NULL,NULL);
CREATE TABLE api_keys (
    id          TEXT PRIMARY KEY,
    project     TEXT NOT NULL REFERENCES projects (id),
    digest      TEXT NOT NULL UNIQUE,
    label       TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    last4       TEXT NOT NULL,
    environment TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT, -- seconds
    revoked_at  BIGINT
, last_used_at BIGINT);
INSERT INTO api_keys VALUES('key_acr4xijp6fskyxke','demo','_lDXEShTHN8-7KaFmmMtp8zW3H7TxSreuTsyPtGGHEI','till','["orders:read","orders:write"]','l4a3','live',1781481600000,1801353600,NULL,NULL);
INSERT INTO api_keys VALUES('key_pluwzhui3vw4iqsd','demo','2BvT3tYVnwHnnFCuxAqXkm_400F3yy_CPUKIG--a6BI','gone','["orders:read"]','HxJv','live',1781481600000,NULL,1781481600000,NULL);
CREATE TABLE domains (
    name            TEXT NOT NULL,
    project         TEXT NOT NULL REFERENCES projects (id),
    status          TEXT NOT NULL,
    status_since    BIGINT NOT NULL,
    is_primary      BOOLEAN NOT NULL,
    primary_wanted  BOOLEAN NOT NULL,
    redirect_to     TEXT,   -- 'primary' or a name
    redirect_status BIGINT,
    is_apex         BOOLEAN,
    checks          TEXT,   -- JSON: the last look at DNS
    problems        TEXT NOT NULL,
    certificate     TEXT NOT NULL,
    watched_since   BIGINT NOT NULL, -- the schedule of checks counts from here
    checked_at      BIGINT,
    failing_since   BIGINT, -- an active domain's first failed check in a row
    due_at          BIGINT, -- when the worker looks next
    lease_until     BIGINT NOT NULL,
    lease_fence     BIGINT NOT NULL,
    removal         BIGINT, -- the revision whose acknowledgement ends the removal
    rev             BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (name, project)
);
INSERT INTO domains VALUES('shop.localhost','demo','active',1781481660000,1,0,NULL,NULL,0,NULL,'[]','{"status":"deployed","ca":"local","serial":"5480f8470c5a268e85e73bed233431d8","not_before":1781478060,"not_after":1789257660,"key_type":"ecdsa-p256","renew_at":1786494504,"advice_at":null,"advised_until":null,"last_error":null,"attempts":0,"next_attempt_at":null,"rate_limited_until":null}',1781481660000,1781481660000,NULL,1781552630577,0,1,NULL,4,1781481660000,1781481660000);
INSERT INTO domains VALUES('old.localhost','demo','active',1781481660000,0,0,'shop.localhost',307,0,NULL,'[]','{"status":"deployed","ca":"local","serial":"40de455381d9da66c5bc8e60cf198068","not_before":1781478060,"not_after":1789257660,"key_type":"ecdsa-p256","renew_at":1786497778,"advice_at":null,"advised_until":null,"last_error":null,"attempts":0,"next_attempt_at":null,"rate_limited_until":null}',1781481660000,1781481660000,NULL,1781581144376,0,1,NULL,4,1781481660000,1781481660000);
INSERT INTO domains VALUES('shop.customer.test','demo','pending_dns',1781481660000,0,0,NULL,NULL,0,'{"at_ms":1781481660000,"duration_ms":0,"queries":10,"resolver":"authoritative","nameservers":[{"host":"ns-192-31-196-1.dns.net","ip":"192.31.196.1","verdict":"missing","cname":null,"a":[],"aaaa":[],"ttl":null}],"caa":{"allowed_cas":[],"records":[]},"record":"missing","txt":null,"zone":"customer.test"}','[{"code":"DNS_NO_RECORD","severity":"error","who":"you","message":"shop.customer.test has no CNAME record yet. DNS changes can take up to 48 hours.","expected":["kf4t3dnado5ldkso.edge.apps.tollhouse.dev"],"observed":[],"where":"shop.customer.test","fix":"Create the record: shop.customer.test 3600 CNAME kf4t3dnado5ldkso.edge.apps.tollhouse.dev","retry_at":null}]','{"status":"none","ca":null,"serial":null,"not_before":null,"not_after":null,"key_type":null,"renew_at":null,"advice_at":null,"advised_until":null,"last_error":null,"attempts":0,"next_attempt_at":null,"rate_limited_until":null}',1781481660000,1781481660000,NULL,1781481664475,0,1,NULL,1,1781481660000,1781481660000);
CREATE TABLE holders (
    name    TEXT PRIMARY KEY,
    project TEXT NOT NULL
);
INSERT INTO holders VALUES('shop.localhost','demo');
INSERT INTO holders VALUES('old.localhost','demo');
CREATE TABLE tombstones (
    name       TEXT PRIMARY KEY,
    lineage    TEXT NOT NULL,
    removed_at BIGINT NOT NULL
);
CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    domain  TEXT,
    kind    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    client  TEXT,
    detail  TEXT NOT NULL,
    at_ms   BIGINT NOT NULL
);
INSERT INTO events VALUES(1,'demo',NULL,'project.created','operator',NULL,'{"plan":"pro"}',1781481600000);
INSERT INTO events VALUES(2,'demo',NULL,'project.deployed','operator',NULL,'{}',1781481600000);
INSERT INTO events VALUES(3,'shut',NULL,'project.created','operator',NULL,'{"plan":"free"}',1781481600000);
INSERT INTO events VALUES(4,'shut',NULL,'project.changed','operator',NULL,'{"access":"key","limits":null,"plan":"free","suspended":true,"upstream":"orders"}',1781481600000);
INSERT INTO events VALUES(5,'demo',NULL,'key.created','key_biacqaeabiacqaea','192.0.2.1','{"key":"key_acr4xijp6fskyxke","scopes":["orders:read","orders:write"]}',1781481600000);
INSERT INTO events VALUES(6,'demo',NULL,'key.created','key_biacqaeabiacqaea','192.0.2.1','{"key":"key_pluwzhui3vw4iqsd","scopes":["orders:read"]}',1781481600000);
INSERT INTO events VALUES(7,'demo',NULL,'key.revoked','key_biacqaeabiacqaea','192.0.2.1','{"key":"key_pluwzhui3vw4iqsd"}',1781481600000);
INSERT INTO events VALUES(8,'demo',NULL,'webhook.created','key_biacqaeabiacqaea','192.0.2.1','{"events":["domain.created"],"webhook":"wh_VUynZT86dqaxvUPV"}',1781481600000);
INSERT INTO events VALUES(9,'demo','shop.localhost','domain.created','operator',NULL,'{"primary":false}',1781481660000);
INSERT INTO events VALUES(10,'demo','shop.localhost','domain.verified','system',NULL,'{"from":"pending_dns","to":"issuing"}',1781481660000);
INSERT INTO events VALUES(11,'demo','shop.localhost','domain.certificate.issued','system',NULL,'{"ca":"local","serial":"5480f8470c5a268e85e73bed233431d8"}',1781481660000);
INSERT INTO events VALUES(12,'demo','shop.localhost','domain.active','system',NULL,'{"from":"issuing","to":"active"}',1781481660000);
INSERT INTO events VALUES(13,'demo','shop.localhost','domain.primary_changed','system',NULL,'{"primary":"shop.localhost"}',1781481660000);
INSERT INTO events VALUES(14,'demo','old.localhost','domain.created','operator',NULL,'{"primary":false}',1781481660000);
INSERT INTO events VALUES(15,'demo','old.localhost','domain.verified','system',NULL,'{"from":"pending_dns","to":"issuing"}',1781481660000);
INSERT INTO events VALUES(16,'demo','old.localhost','domain.certificate.issued','system',NULL,'{"ca":"local","serial":"40de455381d9da66c5bc8e60cf198068"}',1781481660000);
INSERT INTO events VALUES(17,'demo','old.localhost','domain.active','system',NULL,'{"from":"issuing","to":"active"}',1781481660000);
INSERT INTO events VALUES(18,'demo','shop.customer.test','domain.created','operator',NULL,'{"primary":false}',1781481660000);
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO settings VALUES('published_plans','Plans({Free: Grant { limits: Limits { per_minute: 60, per_day: 1000 }, domains: 0 }, Pro: Grant { limits: Limits { per_minute: 300, per_day: 10000 }, domains: 10 }, Business: Grant { limits: Limits { per_minute: 1000, per_day: 100000 }, domains: 100 }, Enterprise: Grant { limits: Limits { per_minute: 1000, per_day: 100000 }, domains: 10000 }})');
CREATE TABLE acme_orders (
    authority    TEXT NOT NULL,
    hostname     TEXT NOT NULL,
    url          TEXT NOT NULL,
    sealed_key   TEXT,   -- of the certificate asked for; nothing once it is in service
    created_at   BIGINT NOT NULL,
    abandoned_at BIGINT, -- the name was removed: from when on its authorizations are to be deactivated
    PRIMARY KEY (authority, hostname)
);
CREATE TABLE acme_limits (
    name    TEXT PRIMARY KEY,
    free_at BIGINT NOT NULL
);
CREATE TABLE webhook_endpoints (
    id              TEXT PRIMARY KEY,
    project         TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    events          TEXT NOT NULL, -- JSON: kinds of events, or prefixes that end in .*
    sealed_secret   TEXT NOT NULL,
    previous_secret TEXT,   -- sealed; signs as well until previous_until
    previous_until  BIGINT,
    failing_since   BIGINT, -- the first failed attempt since the last delivery
    delivered_at    BIGINT, -- the last delivery
    disabled_at     BIGINT,
    disabled_reason TEXT,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
INSERT INTO webhook_endpoints VALUES('wh_VUynZT86dqaxvUPV','demo','http://127.0.0.1:9/in','','["domain.created"]','696acd6ff2071376.BY3xzY/gagvsxqtv9AFrlSH+jqZ+z9kJz1Koa/Ec/rRbD++DbgztpcOcSSWd/lNbBmySLoKrL4uZaNqz',NULL,NULL,1781481660000,NULL,NULL,NULL,1781481600000,1781481600000);
CREATE TABLE webhook_deliveries (
    id          INTEGER PRIMARY KEY,
    endpoint    TEXT NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    message     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    state       TEXT NOT NULL, -- waiting, delivered or failed
    attempts    BIGINT NOT NULL,
    due_at      BIGINT,        -- nothing once it is settled; while an attempt is made, when it counts as lost
    last_result TEXT,
    last_status BIGINT,
    last_error  TEXT,
    last_at     BIGINT,
    created_at  BIGINT NOT NULL
);
INSERT INTO webhook_deliveries VALUES(1,'wh_VUynZT86dqaxvUPV','msg_19ec894de60_9','domain.created','{"data":{"detail":{"primary":false},"domain":"shop.localhost","event_id":9,"project_id":"demo"},"timestamp":"2026-06-15T00:01:00Z","type":"domain.created"}','waiting',1,1781481665014,'unreachable',NULL,'Connection refused (os error 111)',1781481660000,1781481660000);
INSERT INTO webhook_deliveries VALUES(2,'wh_VUynZT86dqaxvUPV','msg_19ec894de60_e','domain.created','{"data":{"detail":{"primary":false},"domain":"old.localhost","event_id":14,"project_id":"demo"},"timestamp":"2026-06-15T00:01:00Z","type":"domain.created"}','waiting',1,1781481665118,'unreachable',NULL,'Connection refused (os error 111)',1781481660000,1781481660000);
INSERT INTO webhook_deliveries VALUES(3,'wh_VUynZT86dqaxvUPV','msg_19ec894de60_12','domain.created','{"data":{"detail":{"primary":false},"domain":"shop.customer.test","event_id":18,"project_id":"demo"},"timestamp":"2026-06-15T00:01:00Z","type":"domain.created"}','waiting',1,1781481665493,'unreachable',NULL,'Connection refused (os error 111)',1781481660000,1781481660000);
CREATE TABLE dashboard_sessions (
    digest     TEXT PRIMARY KEY,
    project    TEXT,            -- nothing: an operator
    key_id     TEXT,            -- the key it was opened with, which must still be good
    client     TEXT NOT NULL,   -- the address it was opened from
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE TABLE dashboard_links (
    digest     TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE TABLE usage_days (
    project   TEXT NOT NULL,
    day       BIGINT NOT NULL, -- days since the epoch
    node      TEXT NOT NULL,   -- empty: the sum of gateways that ended
    admitted  BIGINT NOT NULL,
    refused   BIGINT NOT NULL,
    banned    BIGINT NOT NULL,
    minute    BIGINT NOT NULL, -- the last minute with requests, in minutes since the epoch
    in_minute BIGINT NOT NULL, -- admitted in that minute
    PRIMARY KEY (project, day, node)
);
CREATE TABLE taken_events (
    source   TEXT NOT NULL, -- the database it happened in
    number   BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (source, number)
);
CREATE TABLE edge_bans (
    node     TEXT PRIMARY KEY,
    bans     TEXT NOT NULL,   -- JSON: those that end last
    total    BIGINT NOT NULL, -- how many there are
    heard_at BIGINT NOT NULL
);
CREATE INDEX api_keys_by_project ON api_keys (project, created_at);
CREATE INDEX domains_by_project ON domains (project, name);
CREATE INDEX domains_by_due ON domains (due_at);
CREATE INDEX domains_by_removal ON domains (removal);
CREATE INDEX events_by_project ON events (project, id);
CREATE INDEX events_by_domain ON events (project, domain, id);
CREATE INDEX acme_orders_by_hostname ON acme_orders (hostname);
CREATE INDEX acme_orders_abandoned ON acme_orders (abandoned_at);
CREATE INDEX webhook_endpoints_by_project ON webhook_endpoints (project, created_at);
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint, id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at, endpoint) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (endpoint) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_settled ON webhook_deliveries (created_at) WHERE due_at IS NULL;
CREATE INDEX dashboard_sessions_by_key ON dashboard_sessions (key_id, created_at);
CREATE INDEX dashboard_sessions_by_age ON dashboard_sessions (created_at);
CREATE INDEX usage_days_by_day ON usage_days (day);
CREATE INDEX taken_events_by_age ON taken_events (taken_at);
CREATE INDEX entities_by_seal ON entities (seal, name) WHERE kind = 'certificate';
COMMIT;
