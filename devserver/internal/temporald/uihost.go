package temporald

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"
)

// namedHosts passes on requests whose Host header is an IP address, localhost or one of names, and
// refuses the rest. A web page whose own name was made to resolve to this machine (DNS rebinding)
// counts as the same origin in its browser, so its Host header is all that gives it away; an
// address cannot be rebound.
func namedHosts(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		_, err := netip.ParseAddr(host)
		if err != nil && host != "localhost" && !slices.Contains(names, host) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			http.Error(w, fmt.Sprintf("the host name %q is not allowed; use an address, localhost, or a name given with --ui-host", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// uiProxy serves the UI at inner to callers that namedHosts admits.
func uiProxy(inner netip.AddrPort, names []string) *http.Server {
	target := &url.URL{Scheme: "http", Host: inner.String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // the UI compares it with Origin
		},
	}
	return &http.Server{Handler: namedHosts(names, proxy), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

// hiddenLoopback is an address for the UI behind its proxy: on Linux a random one of 127.0.0.0/8,
// which no web page can guess, elsewhere 127.0.0.1, the only one there is.
func hiddenLoopback() netip.Addr {
	address := [4]byte{127, 0, 0, 1}
	if runtime.GOOS == "linux" {
		_, _ = rand.Read(address[1:]) // never fails
		if address[3] == 0 || address[3] == 255 {
			address[3] = 1
		}
	}
	return netip.AddrFrom4(address)
}
