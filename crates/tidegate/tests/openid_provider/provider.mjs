// An identity provider for the tests of logins: `oidc-provider`, whose path is the first argument. The second is where browsers come
// back to. Says its issuer in a line, and ends with its standard input.
import http from 'node:http';

const { default: Provider } = await import(process.argv[2]);
const server = http.createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: 'web', client_secret: 's/cret', redirect_uris: [process.argv[3]] }],
    conformIdTokenClaims: false,
    claims: { openid: ['sub'], groups: ['groups'] },
    scopes: ['openid', 'groups'],
    cookies: { keys: ['of this test'] },
    pkce: { required: () => true },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: ['staff'] }) }),
  });
  server.on('request', provider.callback());
  console.log(`issuer ${issuer}`);
});
process.stdin.on('end', () => process.exit()).resume();
