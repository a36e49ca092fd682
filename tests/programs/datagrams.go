// Sends datagrams to itself, in the ways that the package net has, and says how many bytes were moved.
package main

import (
	"fmt"
	"net"
	"net/netip"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	moved := 0
	for _, network := range []string{"udp4", "udp6"} {
		address := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0"}[network]
		to, err := net.ResolveUDPAddr(network, address)
		check(err)
		server, err := net.ListenUDP(network, to)
		if err != nil {
			continue // no IPv6 here
		}
		place := server.LocalAddr().(*net.UDPAddr)
		client, err := net.DialUDP(network, nil, place)
		check(err)
		buffer := make([]byte, 2000)
		receive := func(sent int, err error) {
			check(err)
			got, _, err := server.ReadFromUDP(buffer)
			check(err)
			moved += sent + got
		}
		for i := 1; i <= 100; i++ {
			receive(client.Write(buffer[:i]))
			receive(server.WriteToUDP(buffer[:2*i], place))
			receive(server.WriteToUDPAddrPort(buffer[:3*i], netip.MustParseAddrPort(place.String())))
			sent, _, err := server.WriteMsgUDP(buffer[:4*i], nil, place)
			check(err)
			got, _, _, _, err := server.ReadMsgUDP(buffer, nil)
			check(err)
			moved += sent + got
		}
	}
	fmt.Println(moved)
}
