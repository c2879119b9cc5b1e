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
		uiHeaders(w.Header(), r.URL.Path)
		_, err := netip.ParseAddr(host)
		if err != nil && host != "localhost" && !slices.Contains(names, host) {
			http.Error(w, fmt.Sprintf("the host name %q is not allowed; use an address, localhost, or a name given with --ui-host", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// uiHeaders keep other pages from embedding what is served, and caches from keeping what the server answers.
func uiHeaders(header http.Header, path string) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "SAMEORIGIN")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin")
	if strings.HasPrefix(path, "/api/") {
		header.Set("Cache-Control", "no-store")
	}
}

// uiProxy serves the UI at inner to callers that namedHosts admits. What another page sends to change
// something is refused before the UI compares its tokens: a cookie is shared by all ports of a host.
func uiProxy(inner netip.AddrPort, names []string) *http.Server {
	target := &url.URL{Scheme: "http", Host: inner.String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // the UI compares it with Origin
		},
		ModifyResponse: func(answer *http.Response) error {
			ours := http.Header{} // in their place, not beside them
			uiHeaders(ours, answer.Request.URL.Path)
			for name := range ours {
				answer.Header.Del(name)
			}
			return nil
		},
	}
	return &http.Server{
		Handler: namedHosts(names, http.NewCrossOriginProtection().Handler(proxy)), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, DisableGeneralOptionsHandler: true,
	}
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
