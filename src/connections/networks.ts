// Lists of addresses and networks, such as those of proxies.
import { BlockList, isIP } from 'node:net';
import { refuse } from './address-parts.js';

/** `10.0.0.7, 10.1.0.0/16, ::1`. Throws UsageError. */
export function parseNetworks(text: string): BlockList {
  const networks = new BlockList();
  for (const part of text.split(',').map((one) => one.trim())) {
    if (part === '') continue;
    const [address = '', bits, ...rest] = part.split('/');
    const [family, width] = isIP(address) === 6 ? (['ipv6', 128] as const) : (['ipv4', 32] as const);
    refuse(
      isIP(address) === 0 || rest.length > 0 || !/^\d{1,3}$/.test(bits ?? '0') || Number(bits ?? 0) > width,
      `${part} is no address or network; write 10.0.0.7, 10.1.0.0/16 or fd00::/8, separated by commas`,
    );
    networks.addSubnet(address, bits === undefined ? width : Number(bits), family);
  }
  return networks;
}

export function isWithin(networks: BlockList, address: string): boolean {
  const version = isIP(address);
  return version !== 0 && networks.check(address, version === 6 ? 'ipv6' : 'ipv4');
}
