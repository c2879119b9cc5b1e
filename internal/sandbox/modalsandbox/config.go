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

// maxThrottleWait is how long the SDK sleeps when the server asks for less.
const maxThrottleWait = 30 * time.Second

// defaultAppName is the App that sandboxes are made in.
const defaultAppName = "overwinter"

// defaultServerURL is Modal.
const defaultServerURL = "https://api.modal.com:443"

// Config says where sandboxes are made and by whom.
type Config struct {
	// ServerURL is where Modal's API is spoken. Default defaultServerURL. "http://"
	// is plaintext, for a server on this machine.
	ServerURL string
	// TokenID and TokenSecret are the credentials. Required.
	TokenID     string
	TokenSecret secret.Value
	// Environment is the workspace's environment. Default: the workspace's own default.
	Environment string
	// AppName is the App that holds the sandboxes. Default "overwinter".
	AppName string
	// Isolation is what a health check shows. Default "gvisor" for Modal; for a
	// server on this machine what it says itself, and "local" until it has.
	Isolation string
	// PageTimeout bounds one attempt at a page of a list. The SDK asks again for a page that failed. Default 10s.
	PageTimeout time.Duration
	// Logger takes what the SDK has to say. Default: none.
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

// newClient makes a client for exactly this configuration. The SDK would rather
// take the address from the process's environment or ~/.modal.toml, which two
// drivers in one process can not share; its Config field takes it too, but has an
// unexported type, so the value is built by inference.
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
		os.Getenv("MODAL_PROFILE"): {ServerURL: c.ServerURL}, // the SDK looks under this name when it is set
	}); err != nil {
		return nil, err
	}
	return modal.NewClientWithOptions(params)
}

// profiles has the shape of the SDK's configuration.
type profiles map[string]struct {
	ServerURL string
	Active    bool
}

// setProfiles allocates *target, whose type only inference can name, from p.
func setProfiles[T any](target **T, p profiles) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	*target = new(T)
	return json.Unmarshal(text, *target)
}
