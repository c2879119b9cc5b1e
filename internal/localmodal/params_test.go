package localmodal_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"
	modal "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// Modal's command line tool creates secrets by this call, for which the Go SDK has no method.
func TestNamedSecretsAreMadeAndReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := grpc.NewClient(b.server.URL()[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	control := pb.NewModalClientClient(conn)
	ctx := metadata.AppendToOutgoingContext(b.ctx, "x-modal-token-id", b.server.Token().ID, "x-modal-token-secret", b.server.Token().Secret)
	name := appOf(t) + "-" + uuid.NewString() // the server is shared by repetitions of the test
	put := func(kind pb.ObjectCreationType, value string) (*pb.SecretGetOrCreateResponse, error) {
		return control.SecretGetOrCreate(ctx, pb.SecretGetOrCreateRequest_builder{
			DeploymentName: name, EnvironmentName: "staging", ObjectCreationType: kind, EnvDict: map[string]string{"WHICH": value},
		}.Build())
	}
	stored := func() string {
		secret, err := b.client.Secrets.FromName(b.ctx, name, &modal.SecretFromNameParams{Environment: "staging"})
		require.NoError(t, err)
		return b.sh(b.create(&modal.SandboxCreateParams{Secrets: []*modal.Secret{secret}}), "printf %s $WHICH")
	}

	_, err = put(pb.ObjectCreationType_OBJECT_CREATION_TYPE_UNSPECIFIED, "no")
	require.Equal(t, codes.NotFound, status.Code(err))
	made, err := put(pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS, "first")
	require.NoError(t, err)
	require.Equal(t, []string{"WHICH"}, made.GetMetadata().GetKeys())
	_, err = put(pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS, "second")
	require.Equal(t, codes.AlreadyExists, status.Code(err))
	_, err = put(pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING, "third")
	require.NoError(t, err)
	_, err = put(pb.ObjectCreationType_OBJECT_CREATION_TYPE_EPHEMERAL, "fourth")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Equal(t, "first", stored())
	replaced, err := put(pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS, "fifth")
	require.NoError(t, err)
	require.Equal(t, made.GetSecretId(), replaced.GetSecretId())
	require.Equal(t, "fifth", stored())
	_, err = b.client.Secrets.FromName(b.ctx, name, nil)
	require.ErrorAs(t, err, new(modal.NotFoundError), "another environment")
}

func TestUnenforceableLimitsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		params modal.SandboxCreateParams
		code   codes.Code
		says   string
	}{
		"cloud":         {modal.SandboxCreateParams{Cloud: "nimbus"}, codes.InvalidArgument, `unknown cloud "nimbus"`},
		"region":        {modal.SandboxCreateParams{Regions: []string{"us-east-1", "narnia"}}, codes.InvalidArgument, `unknown region "narnia"`},
		"identity":      {modal.SandboxCreateParams{IncludeOidcIdentityToken: true}, codes.Unimplemented, "OIDC"},
		"i6pn":          {modal.SandboxCreateParams{I6PN: true}, codes.Unimplemented, "i6pn"},
		"custom domain": {modal.SandboxCreateParams{CustomDomain: "example.com"}, codes.Unimplemented, "custom domains"},
		"outbound CIDR": {modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{Entries: []string{"x"}}}, codes.InvalidArgument, "Invalid CIDR (outbound IPv4): x"},
		"domain":        {modal.SandboxCreateParams{OutboundDomainAllowlist: &modal.Allowlist{Entries: []string{"a b"}}}, codes.InvalidArgument, "invalid domain"},
		"inbound CIDR":  {modal.SandboxCreateParams{InboundCIDRAllowlist: []string{"x"}}, codes.InvalidArgument, "Invalid CIDR (inbound): x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &c.params)
			if err == nil {
				b.handle(sb)
			}
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestHostNetworkHasOutboundAllowlists(t *testing.T) {
	t.Parallel()
	b, allowed, _ := ownNetwork(t)
	if b == nil {
		b = setup(t)
		_, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{}})
		require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
		return
	}
	url := fmt.Sprintf("http://host.overwinter.internal:%d/", allowed.Port())
	with := b.create(&modal.SandboxCreateParams{OutboundDomainAllowlist: &modal.Allowlist{Entries: []string{"host.overwinter.internal"}}})
	require.Equal(t, "hello", b.sh(with, "curl -sS --max-time 20 "+url))
	without := b.create(&modal.SandboxCreateParams{OutboundDomainAllowlist: &modal.Allowlist{Entries: []string{"example.com"}}})
	require.Equal(t, 7, b.exec(without, nil, "", "curl", "-sS", "--max-time", "20", url).code, "the name is in /etc/hosts; the address is refused")
	require.Equal(t, 7, b.exec(without, nil, "", "curl", "-sS", "--max-time", "20", fmt.Sprintf("http://192.168.127.254:%d/", allowed.Port())).code)
	nothing := b.create(&modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{}})
	require.Equal(t, 7, b.exec(nothing, nil, "", "curl", "-sS", "--max-time", "20", fmt.Sprintf("http://192.168.127.254:%d/", allowed.Port())).code)
	ranges := b.create(&modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{Entries: []string{"192.168.127.254/32"}}})
	require.Equal(t, "hello", b.sh(ranges, fmt.Sprintf("curl -sS --max-time 20 http://192.168.127.254:%d/", allowed.Port())))
}

func TestTunnelsTakeOnlyThoseOnInboundAllowlist(t *testing.T) {
	t.Parallel()
	b := setup(t)
	port := 8080
	if b.lacks(box.OwnNetwork) {
		port = porttest.Free(t)
	}
	for list, admitted := range map[string]bool{"127.0.0.0/8": true, "203.0.113.0/24": false} {
		probe, err := modal.NewTCPProbe(port, nil)
		require.NoError(t, err)
		sb := b.create(&modal.SandboxCreateParams{
			Command: []string{"python3", "-c", serveHTTP, strconv.Itoa(port)}, UnencryptedPorts: []int{port}, ReadinessProbe: probe,
			InboundCIDRAllowlist: []string{list},
		})
		require.NoError(t, sb.WaitUntilReady(b.ctx, waitLimit, nil))
		tunnels, err := sb.Tunnels(b.ctx, waitLimit, nil)
		require.NoError(t, err)
		host, hostPort, err := tunnels[port].TCPSocket()
		require.NoError(t, err)
		c, err := sb.CreateConnectToken(b.ctx, &modal.SandboxCreateConnectTokenParams{Port: port})
		require.NoError(t, err)
		if admitted {
			code, _ := get(t, "http://"+net.JoinHostPort(host, strconv.Itoa(hostPort)), "")
			require.Equal(t, http.StatusOK, code)
			code, _ = get(t, c.URL, c.Token)
			require.Equal(t, http.StatusOK, code)
		} else {
			_, err = http.Get("http://" + net.JoinHostPort(host, strconv.Itoa(hostPort))) //nolint:bodyclose // it fails
			require.Error(t, err)
			code, _ := get(t, c.URL, c.Token)
			require.Equal(t, http.StatusForbidden, code)
		}
		b.terminate(sb)
	}
}
