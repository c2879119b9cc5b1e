package temporald

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"go.temporal.io/server/common/rpc/encryption"
	"google.golang.org/grpc/peer"

	"github.com/overwinter-dev/overwinter/devserver/internal/peeruser"
)

// callers admits the connections of some users of this machine. The zero value admits all.
type callers struct {
	check func(local, remote net.Addr) error
}

// newCallers returns the users that may use the frontend and the UI of c. On other addresses than
// loopback, both are open to their network.
func newCallers(ctx context.Context, c Config, logger log.Logger) (callers, error) {
	users, err := peeruser.Parse(c.AllowUsers)
	if err != nil {
		return callers{}, err
	}
	if users.All() || !c.IP.IsLoopback() {
		return callers{}, nil
	}
	if err := peeruser.Works(ctx); err != nil {
		logger.Warn("cannot tell users of this machine apart: every user can use Temporal", tag.Error(err))
		return callers{}, nil
	}
	return callers{check: users.Check}, nil
}

// Authorize admits calls of the frontend by the user of their connection.
func (c callers) Authorize(ctx context.Context, _ *authorization.Claims, _ *authorization.CallTarget) (authorization.Result, error) {
	if reason := c.refusal(ctx); reason != "" {
		return authorization.Result{Decision: authorization.DecisionDeny, Reason: reason + "; see --allow-users"}, nil
	}
	return authorization.Result{Decision: authorization.DecisionAllow}, nil
}

// refusal returns the reason why a call is not admitted, "" if it is.
func (c callers) refusal(ctx context.Context) string {
	if c.check == nil {
		return ""
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "the connection is not known"
	}
	if err := c.check(p.LocalAddr, p.Addr); err != nil {
		return err.Error()
	}
	return ""
}

// handler passes on requests of admitted connections.
func (c callers) handler(next http.Handler) http.Handler {
	if c.check == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr) // net/http sets it
		remote, err := net.ResolveTCPAddr("tcp", r.RemoteAddr)
		if err == nil {
			err = c.check(local, remote)
		}
		if err != nil {
			uiHeaders(w.Header(), r.URL.Path)
			http.Error(w, err.Error()+"; see --allow-users", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// internalName is the name in the certificate of the services.
const internalName = "overwinter-temporal"

// internalTLS protects the connections among the services, which require no password: each end must
// have the key that is generated here and never leaves this process.
func internalTLS(now time.Time) (encryption.TLSConfigProvider, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the services: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: internalName},
		DNSNames:     []string{internalName},
		NotBefore:    now.AddDate(0, 0, -1),
		NotAfter:     now.AddDate(100, 0, 0), // longer than the lifetime of any process
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the services: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the services: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}
	return &encryption.FixedTLSConfigProvider{
		InternodeServerConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: own, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		},
		InternodeClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: own, RootCAs: pool, ServerName: internalName,
		},
	}, nil
}
