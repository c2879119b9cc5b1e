package modalsandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// maxThrottleWait bounds how long the SDK sleeps when the server throttles it.
const maxThrottleWait = 30 * time.Second

// defaultAppName is the App in which sandboxes are created.
const defaultAppName = "overwinter"

// defaultServerURL is Modal's API.
const defaultServerURL = "https://api.modal.com:443"

// Config configures where and with which credentials sandboxes are created.
type Config struct {
	// ServerURL is the address of a server with Modal's API. Default defaultServerURL. "http://" is
	// plaintext, for a server on this machine.
	ServerURL string
	// TokenID and TokenSecret are the credentials. Required.
	TokenID     string
	TokenSecret secret.Value
	// Environment is the workspace's environment. Default: the workspace's own default.
	Environment string
	// AppName is the App that contains the sandboxes. Default "overwinter".
	AppName string
	// Isolation is shown by health checks. Default "gvisor" for Modal; for a server on this machine
	// what it reports, and "local" until then.
	Isolation string
	// PageTimeout bounds one attempt to fetch a page of a list. The SDK retries a failed page.
	// Default 10s.
	PageTimeout time.Duration
	// Logger receives the log messages of the SDK. Default: none.
	Logger *slog.Logger

	local bool // the server is on this machine
}

func (c *Config) complete() error {
	if c.ServerURL == "" {
		c.ServerURL = defaultServerURL
	}
	u, err := url.Parse(c.ServerURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("server url %q is not http(s)://host:port", c.ServerURL)
	}
	if c.TokenID == "" || c.TokenSecret.Empty() {
		return errors.New("token id and token secret are both needed")
	}
	if c.AppName == "" {
		c.AppName = defaultAppName
	}
	if c.PageTimeout == 0 {
		c.PageTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	ip := net.ParseIP(u.Hostname())
	c.local = u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if c.local {
		c.Logger = slog.New(quiet{c.Logger.Handler()})
	}
	return nil
}

// newClient returns a client for exactly this configuration. The SDK would otherwise read the
// address from the process's environment or ~/.modal.toml, which two drivers in one process cannot
// share. Its Config field accepts the address too, but has an unexported type, so the value is
// built by type inference.
func newClient(c Config, noteIsolation func(string), noteConn func(*grpc.ClientConn), noteNetwork func(*hostports.Set)) (*modal.Client, error) {
	if env := os.Getenv("MODAL_SERVER_URL"); env != "" && env != c.ServerURL {
		return nil, fmt.Errorf("MODAL_SERVER_URL is %q and the SDK would use it instead of %q", env, c.ServerURL)
	}
	wait := maxThrottleWait
	params := &modal.ClientParams{
		TokenID:               c.TokenID,
		TokenSecret:           c.TokenSecret.Reveal(),
		Environment:           c.Environment,
		Logger:                c.Logger,
		MaxThrottleWait:       &wait,
		GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{readListing, readIsolation(noteIsolation), readNetwork(noteNetwork), keepConn(noteConn)},
	}
	if err := setProfiles(&params.Config, profiles{
		"overwinter":               {ServerURL: c.ServerURL, Active: true},
		os.Getenv("MODAL_PROFILE"): {ServerURL: c.ServerURL}, // the SDK uses this profile if the variable is set
	}); err != nil {
		return nil, err
	}
	return modal.NewClientWithOptions(params)
}

// profiles has the form of the SDK's configuration.
type profiles map[string]struct {
	ServerURL string
	Active    bool
}

// setProfiles allocates *target, whose type can only be inferred, from p.
func setProfiles[T any](target **T, p profiles) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	*target = new(T)
	return json.Unmarshal(text, *target)
}
