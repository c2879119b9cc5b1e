package netstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

const (
	dnsPort = 53
	// queryTimeout bounds the resolution of a query. Clients wait 5 s by default.
	queryTimeout = 4 * time.Second
	// dnsIdle is the time without queries after which a connection is closed.
	dnsIdle = 10 * time.Second
	maxDNS  = 1 << 16
	// hostTTL is the TTL of hostports.Name, in seconds.
	hostTTL = 60
)

// ResolvConf returns a resolv.conf with the network's DNS server.
func ResolvConf() string {
	return "nameserver " + netdevice.Gateway.String() + "\noptions timeout:5 attempts:2\n"
}

// serveDNS answers queries to the gateway.
func (n *Network) serveDNS() error {
	address := tcpip.FullAddress{NIC: nic, Addr: gateway, Port: dnsPort}
	packets, err := gonet.DialUDP(n.stack, &address, nil, ipv4.ProtocolNumber)
	if err != nil {
		return err
	}
	listener, err := gonet.ListenTCP(n.stack, address, ipv4.ProtocolNumber)
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	context.AfterFunc(n.ctx, func() {
		_ = packets.Close()
		_ = listener.Close()
	})
	n.tasks.Add(2) // the network is not in use yet
	go func() {
		defer n.tasks.Done()
		n.answerPackets(packets)
	}()
	go func() {
		defer n.tasks.Done()
		n.answerConnections(listener)
	}()
	return nil
}

func (n *Network) answerPackets(conn *gonet.UDPConn) {
	for b := make([]byte, maxDNS); ; {
		size, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		select {
		case n.queries <- struct{}{}:
		default:
			continue // too many concurrent queries
		}
		if !n.begin() {
			return
		}
		query := bytes.Clone(b[:size])
		go func() {
			defer n.tasks.Done()
			defer func() { <-n.queries }()
			if answer := n.answer(query, exchangeUDP); answer != nil {
				_, _ = conn.WriteTo(answer, from) // packets may be lost
			}
		}()
	}
}

func (n *Network) answerConnections(listener net.Listener) {
	places := make(chan struct{}, maxDNSConnections)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		if !n.begin() {
			_ = conn.Close()
			return
		}
		go func() {
			defer n.tasks.Done()
			defer func() { <-places }()
			defer conn.Close()
			defer context.AfterFunc(n.ctx, func() { _ = conn.Close() })()
			n.answerConnection(conn)
		}()
	}
}

// answerConnection answers the queries of one connection in order.
func (n *Network) answerConnection(conn net.Conn) {
	for {
		if conn.SetDeadline(time.Now().Add(dnsIdle)) != nil {
			return
		}
		query, err := readMessage(conn)
		if err != nil {
			return
		}
		answer := n.answer(query, exchangeTCP)
		if answer == nil || writeMessage(conn, answer) != nil {
			return
		}
	}
}

// readMessage reads a message that is preceded by its length.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeMessage(w io.Writer, b []byte) error {
	if len(b) >= maxDNS {
		return errors.New("message is too long")
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

// exchange queries one resolver.
type exchange func(ctx context.Context, server string, query []byte) ([]byte, error)

// answer answers one query; nil for an invalid one.
func (n *Network) answer(query []byte, ask exchange) []byte {
	var parser dnsmessage.Parser
	head, err := parser.Start(query)
	if err != nil || head.Response {
		return nil
	}
	questions, err := parser.AllQuestions()
	if err != nil || len(questions) != 1 {
		return nil
	}
	question := questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, RecursionDesired: head.RecursionDesired, RecursionAvailable: true},
		Questions: questions,
	}
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	switch {
	case !n.config.Allow.resolves(name):
		reply.RCode = dnsmessage.RCodeRefused
	case name == hostports.Name && question.Type == dnsmessage.TypeA:
		n.names.learn(netdevice.HostAddress, hostports.Name)
		n.allow(name, netdevice.HostAddress)
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: hostTTL},
			Body:   &dnsmessage.AResource{A: netdevice.HostAddress.As4()},
		}}
	case name == hostports.Name: // the name has no other records
	default:
		answer := n.resolve(query, question, ask)
		if answer == nil {
			reply.RCode = dnsmessage.RCodeServerFailure
			break
		}
		addresses := addressesIn(answer)
		n.allow(name, addresses...)
		n.names.learnAll(addresses, name)
		if question.Type != dnsmessage.TypeAAAA || n.hasIPv6() {
			return answer
		}
		// IPv6 addresses would be unreachable. The response code stays: that a name does not exist,
		// or that its server fails, applies to all its records.
		reply.RCode = dnsmessage.RCode(binary.BigEndian.Uint16(answer[2:]) & 0xf)
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// hasIPv6 reports whether this machine has a route to the IPv6 internet.
func (n *Network) hasIPv6() bool {
	conn, err := (&net.Dialer{}).DialContext(n.ctx, "udp6", "[2000::1]:9") // sends nothing
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// resolve queries all resolvers concurrently. The first definite response, including that the name
// does not exist, wins over failures.
func (n *Network) resolve(query []byte, question dnsmessage.Question, ask exchange) (failure []byte) {
	ctx, cancel := context.WithTimeout(n.ctx, queryTimeout)
	defer cancel()
	servers := n.config.Resolvers()
	answers := make(chan []byte, len(servers)) // a send never blocks
	for _, server := range servers {
		go func() {
			answer, err := ask(ctx, server, query)
			if err != nil {
				answer = nil
			}
			answers <- answer
		}()
	}
	var result []byte
	for range servers {
		answer := <-answers // every exchange ends with ctx
		if result != nil || !matches(answer, query, question) {
			continue
		}
		switch dnsmessage.RCode(binary.BigEndian.Uint16(answer[2:]) & 0xf) {
		case dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError:
			result = answer
			cancel()
		default:
			failure = answer
		}
	}
	if result != nil {
		return result
	}
	return failure
}

// matches reports whether the message answers the query.
func matches(answer, query []byte, question dnsmessage.Question) bool {
	var parser dnsmessage.Parser
	head, err := parser.Start(answer)
	if err != nil || !head.Response || head.ID != binary.BigEndian.Uint16(query) {
		return false
	}
	asked, err := parser.Question()
	return err == nil && asked.Type == question.Type && asked.Class == question.Class &&
		strings.EqualFold(asked.Name.String(), question.Name.String())
}

func exchangeUDP(ctx context.Context, server string, query []byte) ([]byte, error) {
	return exchangeOver(ctx, "udp", server, func(conn net.Conn) ([]byte, error) {
		if _, err := conn.Write(query); err != nil {
			return nil, err
		}
		b := make([]byte, maxDNS)
		size, err := conn.Read(b)
		return b[:size], err
	})
}

func exchangeTCP(ctx context.Context, server string, query []byte) ([]byte, error) {
	return exchangeOver(ctx, "tcp", server, func(conn net.Conn) ([]byte, error) {
		if err := writeMessage(conn, query); err != nil {
			return nil, err
		}
		return readMessage(conn)
	})
}

func exchangeOver(ctx context.Context, network, server string, talk func(net.Conn) ([]byte, error)) ([]byte, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return talk(conn)
}

// machineResolvers returns the current resolvers of this machine.
func machineResolvers() []string {
	b, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	var servers []string
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" && len(servers) < maxResolvers {
			servers = append(servers, net.JoinHostPort(fields[1], "53"))
		}
	}
	return servers
}

// maxResolvers is the number of resolvers that the C library uses.
const maxResolvers = 3

// names records the names of the addresses that DNS returned to the sandbox.
type names struct {
	mu        sync.Mutex
	byAddress map[netip.Addr]string
}

func (n *names) of(ip netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byAddress[ip.Unmap()]
}

func (n *names) learn(ip netip.Addr, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byAddress == nil || len(n.byAddress) >= maxNames {
		n.byAddress = map[netip.Addr]string{}
	}
	n.byAddress[ip.Unmap()] = name
}

// learnAll records the addresses in a response to a query for name.
func (n *names) learnAll(addresses []netip.Addr, name string) {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return // the name is shown to people
	}
	for _, ip := range addresses {
		n.learn(ip, name)
	}
}

// addressesIn returns the addresses in a response, up to the first record that cannot be parsed.
func addressesIn(answer []byte) (addresses []netip.Addr) {
	var parser dnsmessage.Parser
	if _, err := parser.Start(answer); err != nil || parser.SkipAllQuestions() != nil {
		return nil
	}
	for {
		head, err := parser.AnswerHeader()
		if err != nil {
			return addresses
		}
		switch head.Type {
		case dnsmessage.TypeA:
			a, err := parser.AResource()
			if err != nil {
				return addresses
			}
			addresses = append(addresses, netip.AddrFrom4(a.A))
		case dnsmessage.TypeAAAA:
			a, err := parser.AAAAResource()
			if err != nil {
				return addresses
			}
			addresses = append(addresses, netip.AddrFrom16(a.AAAA))
		default:
			if parser.SkipAnswer() != nil {
				return addresses
			}
		}
	}
}
