package temporald

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// namedHosts passes on requests whose Host header is an IP address, localhost or one of names, and
// refuses the rest. If the name of a web page resolves to this machine (DNS rebinding), its browser
// treats requests as same-origin, so only the Host header reveals them; an address cannot be
// rebound.
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

// uiHeaders prevent other pages from embedding the UI, and caches from storing its responses.
func uiHeaders(header http.Header, path string) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "SAMEORIGIN")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin")
	if strings.HasPrefix(path, "/api/") {
		header.Set("Cache-Control", "no-store")
	}
}

// uiServer serves the UI to admitted callers, under the names of namedHosts. It refuses changes
// requested by pages of other origins before the UI compares its tokens, because all ports of a
// host share cookies.
func uiServer(admitted callers, names []string, ui http.Handler) *http.Server {
	return &http.Server{
		Handler:           admitted.handler(namedHosts(names, http.NewCrossOriginProtection().Handler(ui))),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, MaxHeaderBytes: 64 << 10, DisableGeneralOptionsHandler: true,
	}
}
