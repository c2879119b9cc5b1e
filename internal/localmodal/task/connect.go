package task

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	tokenParameter = "_modal_connect_token" // in the query or a cookie
	userDataHeader = "X-Verified-User-Data"
)

// Credentials give their bearer access to one port of the task by HTTP and WebSocket.
type Credentials struct{ URL, Token string }

// connectServer is an authenticating reverse proxy into the sandbox.
type connectServer struct {
	task      *Task
	url       string
	server    *http.Server
	transport *http.Transport

	mu     sync.Mutex
	grants map[string]grant
}

type grant struct {
	port     uint32
	metadata string // sent to the sandbox with each request of the bearer
}

// Connect issues a token for a port. The sandbox gets metadata with every request with the token,
// in X-Verified-User-Data.
func (t *Task) Connect(port uint32, metadata string) (Credentials, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Credentials{}, ErrClosed
	}
	if t.connect == nil {
		c, err := t.serveConnect()
		if err != nil {
			return Credentials{}, err
		}
		t.connect = c
	}
	token := rand.Text()
	t.connect.mu.Lock()
	defer t.connect.mu.Unlock()
	t.connect.grants[token] = grant{port: port, metadata: metadata}
	return Credentials{URL: t.connect.url, Token: token}, nil
}

func (t *Task) serveConnect() (*connectServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open connect proxy: %w", err)
	}
	c := &connectServer{task: t, url: "http://" + listener.Addr().String(), grants: map[string]grant{}}
	c.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return t.Box.Dial(ctx, address)
		},
	}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 30 * time.Second}
	c.server.BaseContext = func(net.Listener) context.Context { return t.ctx }
	t.group.Go(func() { _ = c.server.Serve(listener) }) // ends with ErrServerClosed
	return c, nil
}

func (c *connectServer) close() error {
	err := c.server.Close()
	c.transport.CloseIdleConnections()
	return err
}

func (c *connectServer) grant(token string) (grant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.grants[token]
	return g, ok
}

func bearer(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	if token := r.URL.Query().Get(tokenParameter); token != "" {
		return token
	}
	if cookie, err := r.Cookie(tokenParameter); err == nil {
		return cookie.Value
	}
	return ""
}

func (c *connectServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.task.admits(r.RemoteAddr) {
		http.Error(w, "this sandbox takes no connections from your address", http.StatusForbidden)
		return
	}
	g, ok := c.grant(bearer(r))
	if !ok {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	defer c.task.hold()()
	target := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", g.port)}
	proxy := &httputil.ReverseProxy{
		Transport: c.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Del("Authorization")
			p.Out.Header.Set(userDataHeader, g.metadata)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				http.Error(w, "nothing answers on this port of the sandbox", http.StatusBadGateway)
			}
		},
	}
	proxy.ServeHTTP(w, r)
}
