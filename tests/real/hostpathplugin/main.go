// Proxy mode of csi-driver-host-path's hostpathplugin, which upstream's DRA tests run in the pods of their
// driver: connections to -endpoint, a Unix socket, are joined in pairs with those to -proxy-endpoint, a port.
//
//	CGO_ENABLED=0 go build -o $KUBEBUILDER_ASSETS/hostpathplugin tests/real/hostpathplugin/main.go
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func listen(endpoint string) net.Listener {
	network, address, found := strings.Cut(endpoint, "://")
	if !found {
		network, address = "unix", endpoint
	}
	if network == "unix" {
		os.Remove(address)
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func forward(to, from net.Conn) {
	io.Copy(to, from)
	to.Close()
	from.Close()
}

func join(clients, servers net.Listener) {
	for {
		client, err := clients.Accept()
		if err != nil {
			return
		}
		server, err := servers.Accept()
		if err != nil {
			return
		}
		go forward(client, server)
		go forward(server, client)
	}
}

func main() {
	flag.String("v", "", "log level, ignored")
	endpoint := flag.String("endpoint", "", "Unix socket of the plugin")
	proxyEndpoint := flag.String("proxy-endpoint", "", "TCP port of the tests")
	flag.Parse()
	clients, servers := listen(*endpoint), listen(*proxyEndpoint)
	go join(clients, servers)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	clients.Close()
	servers.Close()
}
