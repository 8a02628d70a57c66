// An OpenID Provider, independent of Dragoman: discovery, JWK Set, and JWTs by client credentials.
// Arguments: port (0: a free one) and name of the keys; prints its URL once it listens.
import { createServer } from 'node:http'
import { generateKeyPairSync } from 'node:crypto'
import Provider from 'oidc-provider'

const [port, keys] = [Number(process.argv[2] ?? 0), process.argv[3] ?? 'k']

const jwk = (kid, alg, ...how) => {
  const { privateKey } = generateKeyPairSync(...how)
  return { ...privateKey.export({ format: 'jwk' }), kid, alg, use: 'sig' }
}

const server = createServer()
server.listen(port, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`
  const provider = new Provider(url, {
    jwks: {
      keys: [
        jwk(`${keys}-rsa`, 'RS256', 'rsa', { modulusLength: 2048 }),
        jwk(`${keys}-ec`, 'ES256', 'ec', { namedCurve: 'P-256' }),
      ],
    },
    clients: ['client_secret_basic', 'client_secret_post'].map((method) => ({
      client_id: method,
      client_secret: 'a secret: with/odd+characters %',
      token_endpoint_auth_method: method,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    })),
    scopes: ['openid', 'limited'],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => 'https://agents.example.org',
        useGrantedResource: () => true,
        getResourceServerInfo: (context, resource, client) => ({
          scope: 'limited',
          audience: resource,
          accessTokenFormat: 'jwt',
          accessTokenTTL: 600,
          jwt: { sign: { alg: client.clientId === 'client_secret_post' ? 'ES256' : 'RS256' } },
        }),
      },
    },
    extraTokenClaims: (context, token) =>
      token.scope === 'limited' ? { dragoman: { agents: ['echo'], scopes: ['send'], role: 'agent' } } : undefined,
  })
  server.on('request', provider.callback())
  console.log(`listening ${url}`)
})
