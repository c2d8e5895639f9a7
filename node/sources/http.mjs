export class HttpSource {}
