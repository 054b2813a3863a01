"""How a client reaches its cluster: the names of its settings for addresses, encryption and credentials."""

_SSL = (
    "cipher.suites enabled.protocols endpoint.identification.algorithm engine.factory.class key.password"
    " keymanager.algorithm keystore.certificate.chain keystore.key keystore.location keystore.password keystore.type"
    " protocol provider secure.random.implementation trustmanager.algorithm truststore.certificates"
    " truststore.location truststore.password truststore.type"
)
_SASL = (
    "client.callback.handler.class jaas.config kerberos.kinit.cmd kerberos.min.time.before.relogin"
    " kerberos.service.name kerberos.ticket.renew.jitter kerberos.ticket.renew.window.factor"
    " login.callback.handler.class login.class login.connect.timeout.ms login.read.timeout.ms"
    " login.refresh.buffer.seconds login.refresh.min.period.seconds login.refresh.window.factor"
    " login.refresh.window.jitter login.retry.backoff.max.ms login.retry.backoff.ms mechanism"
    " oauthbearer.assertion.algorithm oauthbearer.assertion.claim.aud oauthbearer.assertion.claim.exp.seconds"
    " oauthbearer.assertion.claim.iss oauthbearer.assertion.claim.jti.include"
    " oauthbearer.assertion.claim.nbf.seconds oauthbearer.assertion.claim.sub oauthbearer.assertion.file"
    " oauthbearer.assertion.private.key.file oauthbearer.assertion.private.key.passphrase"
    " oauthbearer.assertion.template.file oauthbearer.client.credentials.client.id"
    " oauthbearer.client.credentials.client.secret oauthbearer.clock.skew.seconds oauthbearer.expected.audience"
    " oauthbearer.expected.issuer oauthbearer.header.urlencode oauthbearer.jwks.endpoint.refresh.ms"
    " oauthbearer.jwks.endpoint.retry.backoff.max.ms oauthbearer.jwks.endpoint.retry.backoff.ms"
    " oauthbearer.jwks.endpoint.url oauthbearer.jwt.retriever.class oauthbearer.jwt.validator.class"
    " oauthbearer.scope oauthbearer.scope.claim.name oauthbearer.sub.claim.name oauthbearer.token.endpoint.url"
)
CLIENT_NAMES = frozenset(
    ["bootstrap.servers", "security.protocol"]
    + [f"ssl.{name}" for name in _SSL.split()]
    + [f"sasl.{name}" for name in _SASL.split()]
)
"""The only client settings that a client inherits from its cluster, and a cluster from the top of the file."""
