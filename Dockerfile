# syntax=docker/dockerfile:1
# Versions are exact. .github/renovate.json adds their digests and renews both.
FROM node:22.20.0-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
# No install script of a package is needed, so none is run.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY scripts ./scripts
COPY src ./src
RUN npm run build

FROM node:22.20.0-slim
ENV NODE_ENV=production
WORKDIR /app
COPY package.json package-lock.json ./
# The optional packages are the demo's PostgreSQL, larger than all other packages together.
RUN npm ci --ignore-scripts --omit=dev --omit=optional --no-audit --no-fund && npm cache clean --force
COPY --from=build /app/dist ./dist
COPY migrations ./migrations
USER node
# sync.config.ts is mounted, and named by SLOTSYNC_CONFIG; in /app it is found if root or this user owns it.
# With --, Node leaves the options behind it to the program: it has an --env-file of its own.
ENTRYPOINT ["node", "--", "dist/cli.js"]
CMD ["worker"]
