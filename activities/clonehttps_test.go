package activities_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

const gitPassword = "hunter2-password"

// authority is a certificate authority that only the sandboxes of a test trust.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{key, certificate}
}

// issue makes a certificate for a server with that name.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// trust makes the sandboxes of a test start from an image whose git trusts the authority.
func (b *harness) trust(a *authority) {
	const file = "/overwinter/test-authority.pem"
	img := runnerImage(b.provider)
	img.recipe.Files = append(img.recipe.Files,
		sandbox.RecipeFile{Path: file, Content: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})},
		sandbox.RecipeFile{Path: runner.DefaultPaths().Home + "/.gitconfig", Content: []byte("[http]\n\tsslCAInfo = " + file + "\n")})
	b.config.Image = img
}

// gitServer is a git server of this machine's loopback interface that sandboxes reach.
type gitServer struct {
	url  string // https, on 127.0.0.1
	port string
	mu   sync.Mutex
	got  []string // the password of each request, empty for none
}

// insideURL is the server's URL as sandboxes know it.
func (s *gitServer) insideURL() string { return "https://host.overwinter.internal:" + s.port }

func (s *gitServer) passwords() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// serveGit serves with TLS. A request without a password is refused unless the server is open.
func serveGit(t *testing.T, a *authority, open bool, handler http.Handler) *gitServer {
	t.Helper()
	s := &gitServer{}
	listener := listenOnHostPort(t)
	_, s.port, _ = strings.Cut(listener.Addr().String(), ":")
	s.url = "https://" + listener.Addr().String()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.issue(t, "host.overwinter.internal")}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			s.mu.Lock()
			s.got = append(s.got, password)
			s.mu.Unlock()
			if !open && password == "" {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			handler.ServeHTTP(w, r)
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "") // ends when it is closed
	}()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		<-done
	})
	return s
}

// gitBackend serves a repository with one file, hello.
func gitBackend(t *testing.T) http.Handler {
	t.Helper()
	root := t.TempDir()
	run := func(argv ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", argv...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "HOME="+root, "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", argv, out)
		return strings.TrimSpace(string(out))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "hello"), []byte("hello\n"), 0o600))
	run("init", "-q")
	run("add", "hello")
	run("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "first")
	run("clone", "-q", "--bare", ".", "private.git")
	return &cgi.Handler{
		Path: filepath.Join(run("--exec-path"), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
}

// clones prepares a session whose repository is at the URL; credentials are stored for its host.
func clones(t *testing.T, a *authority, repoURL string) *harness {
	t.Helper()
	b := setup(t)
	b.trust(a)
	u, err := url.Parse(repoURL)
	require.NoError(t, err)
	b.config.Secrets = gitSecret("git:" + u.Host)
	b.build()
	b.sql(t, `UPDATE sessions SET workspace = jsonb_build_object('repoUrl', $2::text) WHERE id = $1`, b.id, repoURL)
	return b
}

func TestPrivateRepositoryOnThisMachineIsClonedOverHTTPS(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	a := newAuthority(t)
	server := serveGit(t, a, false, gitBackend(t))
	b := clones(t, a, strings.Replace(server.url, "https", "HTTPS", 1)+"/private.git")
	ready := b.create(t)
	require.Equal(t, "hello\n", b.shell(t, ready.SandboxID, "cat /workspace/hello"))
	require.Contains(t, server.passwords(), gitPassword)
	require.Equal(t, server.insideURL()+"/private.git\n", b.shell(t, ready.SandboxID, "git -C /workspace config remote.origin.url"))
	require.Equal(t, "none\n", b.shell(t, ready.SandboxID,
		"grep -rsl "+gitPassword+" /workspace /overwinter /root /tmp /proc/[0-9]*/environ || echo none"), "the sandbox keeps no credentials")
}

// redirect is a redirection by a git server.
type redirect struct {
	to      func(thief *gitServer) string
	message string // of the clone's failure
	open    bool   // the server asks for no credentials itself
	asks    bool   // the other server is reached, and asks for credentials
}

func TestGitRedirectDoesNotForwardCredentials(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	to := func(target string) func(*gitServer) string { return func(*gitServer) string { return target } }
	a := newAuthority(t)
	for name, target := range map[string]redirect{
		"AnotherServer":     {to: (*gitServer).insideURL, message: "not sent to other hosts that it redirects to", asks: true},
		"AnotherServerOnly": {to: (*gitServer).insideURL, message: "asks for credentials; those of the repository are sent to", open: true, asks: true},
		"AnotherProtocol":   {to: func(s *gitServer) string { return "http://host.overwinter.internal:" + s.port }, message: "error: 400"},
		"MetadataAddress":   {to: to("http://169.254.169.254/latest"), message: "169.254.169.254 port 80"},
		"PrivateAddress":    {to: to("https://10.0.0.1:8443"), message: "10.0.0.1 port 8443"},
		"Loopback":          {to: to("https://127.0.0.1:19999"), message: "127.0.0.1 port 19999"},
		"UnlistedPort":      {to: to("https://host.overwinter.internal:19999"), message: "host.overwinter.internal port 19999"},
		"File":              {to: to("file:///etc/passwd?"), message: "file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			thief := serveGit(t, a, false, http.NotFoundHandler())
			home := serveGit(t, a, target.open, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target.to(thief)+r.URL.RequestURI(), http.StatusFound)
			}))
			b := clones(t, a, home.url+"/private.git")
			_, err := b.beginCreate(t).wait(t)
			require.ErrorContains(t, err, target.message)
			require.NotContains(t, err.Error(), gitPassword)
			if !target.open {
				require.Contains(t, home.passwords(), gitPassword)
			}
			require.NotContains(t, thief.passwords(), gitPassword)
			if target.asks {
				require.NotEmpty(t, thief.passwords(), "the redirect is followed")
				requireType(t, activities.Refused, err)
			}
		})
	}
}
